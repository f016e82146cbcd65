from sparrowmq.client.consuming.hooks import ConsumeHooks


def test_by_default_nothing_happens():
    ConsumeHooks().before_consume([])
    ConsumeHooks().after_consume([], ValueError())
