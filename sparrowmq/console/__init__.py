"""The console: a cluster in the browser, ours or Apache's.

    browser                                 this process
    GET /topics  ── cookie ──> login_guard.py   who is it? no cookie: log-in page; foreign origin: refused
                               pages/*.py   one file a page; draws NiceGUI's elements
    web socket   <── values ── view.py      what a page gets: who looks, the cluster, addresses, forms
                 ── clicks ──> actions.py   the only file that changes anything; asks for a role each time
                               cluster_view.py  the only file that reads: one client, one `Admin`

NiceGUI keeps a page's state here and sends the browser what changes, so there is no script of ours to run, copy or
build, and nothing comes from the internet. Every view has an address: filters and places stand in the query.
Who may do what (`users.py`): view < operate < admin. A page leaves out what its reader may not do, but what counts
is that `Actions` refuses it. Source of what there is to see: rocketmq-dashboard 2.1.
"""
