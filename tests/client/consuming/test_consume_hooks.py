from sparrowmq.client.consuming.consume_hooks import ConsumeHooks


def test_by_default_nothing_happens():
    ConsumeHooks().before_consume([])
    ConsumeHooks().after_consume([], ValueError())
