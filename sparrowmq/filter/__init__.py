"""SQL92 filters: compile the text of an expression into conditions, and evaluate them on a message's properties.

    "amount > 5 AND region IN ('EU', 'US')"
        ── grammar.py   lark: tokens, precedence, the place of an error; and a check of operand types, as in Java
        ── Filter       names: ("amount", "region"); matches(Texts(["7", "EU"])) is True

The caller looks up the values of `names` in a message and passes them to `matches`; this package knows no records.
Results are those of Java's SqlFilter, oddities included. NOT binds closer than "=". If a property is compared with a
number and is none, the whole expression does not match. docs/understand/differences.md lists deliberate differences.
Source: rocketmq-filter 4.9.7, and 5.4.0 for CONTAINS, STARTSWITH and ENDSWITH.
"""
