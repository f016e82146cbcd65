def test_a_value_is_kept_shown_and_forgotten(admin):
    assert admin.ok("updateKvConfig -s NS -k name -v value") == "create or update kv config to namespace success.\n"
    assert admin.ok("deleteKvConfig -s NS -k name") == "delete kv config from namespace success.\n"
    assert admin.ok("updateOrderConf -m put -t Some -v broker-0:4").endswith("topic=[Some], orderConf=[broker-0:4]")
    assert admin.ok("updateOrderConf -m get -t Some").endswith("orderConf=[broker-0:4] ")
    assert admin.ok("updateOrderConf -m delete -t Some") == "delete orderConf success. topic=[Some]"
    gone = admin("updateOrderConf -m get -t Some")
    assert gone.code == 1 and "CODE: 22" in gone.err
    assert "please set orderConf with option -v." in admin("updateOrderConf -m put -t Some").err
    assert admin.ok("updateOrderConf -m other -t Some").startswith("usage: mqadmin updateOrderConf")


def test_settings_are_shown_and_changed(admin):
    namesrv = admin.cluster.namesrv
    assert f"============{namesrv}============\n" in admin.ok("getNamesrvConfig")
    said = admin.ok("updateNamesrvConfig -k orderMessageEnable -v true")
    assert said == f"update name server config success![{namesrv}]\norderMessageEnable : true\n"
    assert "orderMessageEnable                                =  true\n" in admin.ok("getNamesrvConfig")


def test_a_broker_is_hidden_from_producers_and_shown_again(admin):
    place = f"broker[broker-0] in name server[{admin.cluster.namesrv}]"
    assert admin.ok("wipeWritePerm -b broker-0").startswith(f"wipe write perm of {place} OK, ")
    assert admin.ok("addWritePerm -b broker-0").startswith(f"add write perm of {place} OK, ")


def test_a_name_server_that_is_away_is_told_and_the_next_one_asked(admin):
    said = admin("wipeWritePerm -b broker-0 -n 127.0.0.1:1")
    assert said.out == "wipe write perm of broker[broker-0] in name server[127.0.0.1:1] Failed\n"
    assert said.code == 1 and said.err.startswith("org.apache.rocketmq.remoting.exception.RemotingConnectException")
