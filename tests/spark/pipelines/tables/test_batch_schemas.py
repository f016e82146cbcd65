"""sparrowmq.spark.pipelines.tables.encoded_shape: a batch that is repeated has the schemas that it had."""

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import BadStore, InvalidSchema, NetworkError
from sparrowmq.spark.pipelines.tables.encoded_bodies import NO_SCHEMA_ID, SchemaSource
from sparrowmq.spark.pipelines.tables.encoded_shape import MAX_NEW_SCHEMAS, BatchSchemas


class Registered:
    """Schemas by id; asking for others is an error."""

    def __init__(self, **known):
        self.known = {int(name[1:]): SchemaSource("AVRO", text) for name, text in known.items()}
        self.asked = []
        self.is_away = False

    def __call__(self, schema_id):
        self.asked.append(schema_id)
        if self.is_away:
            raise NetworkError("away")
        if schema_id not in self.known:
            raise InvalidSchema("no such schema")
        return self.known[schema_id]


def test_an_id_is_asked_for_once(tmp_path):
    ask = Registered(_1="one", _2="two")
    schemas = BatchSchemas(ask, tmp_path / "schemas.json")
    assert schemas.schemas_for(0, [1]) == ({1: SchemaSource("AVRO", "one")}, {})
    assert schemas.schemas_for(1, [1, 2])[0] == {1: SchemaSource("AVRO", "one"), 2: SchemaSource("AVRO", "two")}
    assert BatchSchemas(ask, tmp_path / "schemas.json").schemas_for(2, [2]) == ({2: SchemaSource("AVRO", "two")}, {})
    assert ask.asked == [1, 2]


def test_what_a_schema_needs_is_kept(tmp_path):
    ask = Registered()
    ask.known[1] = SchemaSource("PROTOBUF", "a", (("b", "c"), ("d", "e")), "M")
    BatchSchemas(ask, tmp_path / "schemas.json").schemas_for(0, [1])
    assert BatchSchemas(ask, tmp_path / "schemas.json").schemas_for(1, [1])[0] == ask.known


def test_a_batch_that_is_repeated_misses_what_it_missed(tmp_path):
    """Its rows may be in the table already, so a message that was an error has to be one again."""
    ask = Registered()
    assert BatchSchemas(ask, tmp_path / "schemas.json").schemas_for(3, [7]) == ({}, {7: "no such schema"})
    ask.known[7] = SchemaSource("AVRO", "seven")
    again = BatchSchemas(ask, tmp_path / "schemas.json")
    assert again.schemas_for(3, [7]) == ({}, {7: "no such schema"})
    assert again.schemas_for(4, [7]) == ({7: SchemaSource("AVRO", "seven")}, {})


@pytest.mark.parametrize("damage", [lambda text: "", lambda text: text[:9], lambda text: text.replace("one", "two")])
def test_a_damaged_file_is_named_with_what_to_do(tmp_path, damage):
    file = tmp_path / "schemas.json"
    BatchSchemas(Registered(_1="one"), file).schemas_for(0, [1])
    file.write_text(damage(file.read_text()))
    with pytest.raises(BadStore, match=r"schemas.json, .* is damaged; restore it from a backup, or remove it"):
        BatchSchemas(Registered(), file)


def test_a_registry_that_is_away_leaves_nothing_behind(tmp_path):
    ask = Registered(_1="one")
    schemas = BatchSchemas(ask, tmp_path / "schemas.json")
    ask.is_away = True
    with pytest.raises(NetworkError):
        schemas.schemas_for(0, [1])
    ask.is_away = False
    assert schemas.schemas_for(0, [1])[0] == ask.known
    ask.is_away = True
    assert schemas.schemas_for(1, [1])[0] == ask.known


def test_invented_ids_cost_a_limited_number_of_questions(tmp_path):
    ask = Registered(_1="one")
    known, missing = BatchSchemas(ask, tmp_path / "schemas.json").schemas_for(0, [1, *range(100, 100_000)])
    assert len(ask.asked) == MAX_NEW_SCHEMAS and set(known) == {1} and len(missing) == MAX_NEW_SCHEMAS - 1


def test_a_file_takes_effect_with_the_next_batch(tmp_path):
    ask = Registered()
    ask.known[NO_SCHEMA_ID] = SchemaSource("AVRO", "old")
    assert BatchSchemas(ask, tmp_path / "schemas.json").schemas_for(0, [NO_SCHEMA_ID])[0] == {
        NO_SCHEMA_ID: SchemaSource("AVRO", "old")
    }
    ask.known[NO_SCHEMA_ID] = SchemaSource("AVRO", "new")
    schemas = BatchSchemas(ask, tmp_path / "schemas.json")
    assert schemas.schemas_for(0, [NO_SCHEMA_ID])[0] == {NO_SCHEMA_ID: SchemaSource("AVRO", "old")}
    assert schemas.schemas_for(1, [NO_SCHEMA_ID])[0] == {NO_SCHEMA_ID: SchemaSource("AVRO", "new")}


def test_without_a_file_nothing_is_kept():
    ask = Registered(_1="one")
    schemas = BatchSchemas(ask, None)
    assert schemas.schemas_for(0, [1, 2]) == (ask.known, {2: "no such schema"})
