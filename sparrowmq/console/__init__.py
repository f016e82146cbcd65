"""The console: a cluster in the browser, ours or Apache's.

    browser                                 this process
    GET /topics  ── cookie ──> login.py          checks the session; without one: log-in page; foreign origin: refused
                               pages/            what each page reads, its columns and its parts
                               layout/           the table, the dialog, charts, and the kinds of pages
    web socket   <── values ── cluster_view.py   reads the cluster: one client, one `Admin`
                               samples.py        rates and lags that the console samples while it runs; history.py
                 ── clicks ──> actions.py        the only file that changes anything; each action names its role

NiceGUI keeps a page's state here and sends changes to the browser, so the console has no scripts of its own, and
nothing comes from the internet. Every view has an address: filters and page numbers are in the query. The roles
(`users.py`) are view < operate < admin. A page leaves out the buttons that its visitor may not press, and
`layout/forms.py` checks the role again when an action runs. The pages follow rocketmq-dashboard 2.1.
"""
