"""SQL92 filters: the text of an expression becomes conditions, which say of a message's properties whether they hold.

    "amount > 5 AND region IN ('EU', 'US')"
        ── grammar.py   lark: tokens, precedence, the place of an error
        ── builder.py   which operands may meet, as Java checks them when it compiles
        ── Filter       names: ("amount", "region"); matches(Texts(["7", "EU"])) is True

Whoever has a message looks up the values of `names` and asks `matches`; nothing here knows what a record is. What
holds is what Java's SqlFilter finds, its oddities too: NOT binds closer than "=", and a property that cannot be read as
the number it is compared with makes the whole expression not match, not only its part. Deliberate differences are in
docs/understand/differences.md.
Source: rocketmq-filter 4.9.7, and 5.4.0 for CONTAINS, STARTSWITH and ENDSWITH.
"""
