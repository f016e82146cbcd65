import pytest

from sparrowmq.console.login import login_form, own_path


def test_what_was_typed_comes_back_as_text():
    made = login_form("/login", '/"><script>', "<b>no</b>", '"><img src=x>')
    assert "<script>" not in made and "<img" not in made and "<b>" not in made
    assert "&lt;b&gt;no&lt;/b&gt;" in made


@pytest.mark.parametrize("target", ["/", "/topics", "/topics/orders?page=2", "/groups/a%25b"])
def test_a_path_here_is_gone_on_to(target):
    assert own_path(target) == target


@pytest.mark.parametrize(
    "target",
    [
        "",
        "topics",
        "//evil.example",
        "//[evil",
        "/\\evil.example",
        "https://evil.example/",
        "javascript:alert(1)",
        "/a\nb",
        "\\/x",
    ],
)
def test_a_target_elsewhere_is_not(target):
    assert own_path(target) == "/"
