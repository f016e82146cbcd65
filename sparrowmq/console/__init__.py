"""The console: a cluster in the browser, ours or Apache's.

    browser                                 this process
    GET /topics  ── cookie ──> login/       checks the session; without one: log-in page; foreign origin: refused
                               pages/       one file for each page; draws NiceGUI's elements
                               layout/      tables, dialogs, charts, and the frame around each page
    web socket   <── values ── reading/     reads the cluster: one client, one `Admin`
                               history/     rates and lags that the console samples while it runs
                 ── clicks ──> actions.py   the only file that changes anything; asks for a role each time

NiceGUI keeps a page's state here and sends the browser what changes, so there is no script of ours to run, copy or
build, and nothing comes from the internet. Every view has an address: filters and places stand in the query.
Who may do what (`users.py`): view < operate < admin. A page leaves out what its reader may not do, but what counts
is that `Actions` refuses it. Source of what there is to see: rocketmq-dashboard 2.1.
"""
