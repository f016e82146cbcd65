import pytest

from sparrowmq.protocol.requests import user_headers as user
from sparrowmq.protocol.wire.header import Header
from tests.protocol.requests.wire_names import comes_back, fields_of, required_of

# With javap from rocketmq-remoting 5.4.0. There no field is required; its own tools send these always.
JAVA = [
    (user.CreateUser, "username", ""),
    (user.UpdateUser, "username", ""),
    (user.DeleteUser, "username", ""),
    (user.GetUser, "username", ""),
    (user.ListUsers, "", "filter"),
    (user.CreateAcl, "subject", ""),
    (user.UpdateAcl, "subject", ""),
    (user.DeleteAcl, "subject", "policyType resource"),
    (user.GetAcl, "subject", ""),
    (user.ListAcls, "", "subjectFilter resourceFilter"),
]


@pytest.mark.parametrize(("kind", "required", "others"), JAVA, ids=lambda value: getattr(value, "__name__", None))
def test_a_header_has_the_fields_of_java(kind: type[Header], required: str, others: str) -> None:
    assert required_of(kind) == set(required.split())
    assert fields_of(kind) == {*required.split(), *others.split()}
    assert comes_back(kind)
