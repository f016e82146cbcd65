from sparrowmq.console.layout.forms import Field, Form, search_form
from tests.console.layout.seeing import page, seen


async def test_values_have_the_kind_of_their_fields():
    with page():
        form = Form(
            [
                Field("text", "Text", value=" a b "),
                Field("body", "Body", "long text", value=" a\n"),
                Field("secret", "Secret", "secret"),
                Field("count", "Count", "number", 3),
                Field("none", "None", "number"),
                Field("choice", "Choice", "choice", "x", ["x", "y"]),
                Field("box", "Box", "box"),
            ]
        )
    expected = {
        "text": "a b",
        "body": " a\n",
        "secret": "",
        "count": 3,
        "none": None,
        "choice": "x",
        "box": False,
    }
    assert form.values == expected


async def test_a_field_is_hidden_while_others_do_not_fit():
    with page():
        form = Form(
            [
                Field("kind", "Kind", "choice", "x", ["x", "y"]),
                Field("at", "At", shown_if=lambda it: it["kind"] == "y"),
            ]
        )
        assert not form._elements["at"].visible
        form.set("kind", "y")
    assert form._elements["at"].visible


async def test_new_choices_replace_the_old_and_the_first_is_chosen():
    with page():
        form = Form([Field("member", "Member", "choice")])
        form.offer("member", ["a", "b"])
        assert form.values == {"member": "a"}
        form.offer("member", [])
    assert form.values == {"member": None}


async def test_a_search_starts_with_the_values_of_the_address():
    with page():
        form = search_form(seen(query="topic=orders"), [Field("topic", "Topic"), Field("tag", "Tag", value="paid")])
    assert form.values == {"topic": "orders", "tag": "paid"}


async def test_a_search_while_typing_waits_for_a_pause():
    with page():
        form = Form([Field("tag", "Tag")])
        form.on_change(lambda: None)
        assert "debounce" not in form._elements["tag"].props
        form.on_change(lambda: None, pause_ms=400)
    assert form._elements["tag"].props["debounce"] == "400"
