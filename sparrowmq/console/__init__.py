"""The console: a cluster in the browser, ours or Apache's.

    browser                                 this process
    GET /topics  ── cookie ──> login/       checks the session; without one: log-in page; foreign origin: refused
                               pages/       one file for each page: what it reads, its columns and its parts
                               layout/      the table, the dialog, charts, and the frame around each page
    web socket   <── values ── reading/     reads the cluster: one client, one `Admin`
                               history/     rates and lags that the console samples while it runs
                 ── clicks ──> actions.py   the only file that changes anything; each action names its role

NiceGUI keeps a page's state here and sends changes to the browser, so the console has no scripts of its own, and
nothing comes from the internet. Every view has an address: filters and page numbers are in the query. The roles
(`users.py`) are view < operate < admin. A page leaves out the buttons that its visitor may not press, and
`layout/action_dialog.py` checks the role again when an action runs. The pages follow rocketmq-dashboard 2.1.
"""
