"""Each condition has a section on the page for operators, and alerts lead there."""

from pathlib import Path

from sparrowmq.metrics.condition_kinds import KINDS, Severity

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "conditions.md"
RULES = Path(__file__).parents[2] / "examples" / "monitoring" / "rules.yml"


def test_each_condition_has_its_section_with_the_remedy():
    page = PAGE.read_text()
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    for kind in KINDS:
        section = page.split(f"\n## {kind.name}\n")[1].split("\n## ")[0]
        assert f"Severity: {kind.severity.value}" in section, kind.name
        assert ("`/readyz` answers 503" in section) == kind.is_unready, kind.name
        remedy = " ".join(section.split("**What to do:**")[1].split())
        assert remedy.startswith(kind.remedy[0].upper() + kind.remedy[1:]), kind.name


def test_an_alert_of_each_severity_but_notices_names_the_page():
    rules = RULES.read_text()
    for severity in Severity:
        is_alert = f'sparrowmq_condition{{severity="{severity.value}"}}' in rules
        assert is_alert == (severity is not Severity.NOTICE), severity
    assert "docs/operate/conditions.md#{{ $labels.condition }}" in rules
