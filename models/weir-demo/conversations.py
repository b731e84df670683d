"""Synthetic facts with questions, copies and short chats.

A conversation is (context pieces, [(question, answer)]).
"""

from words import (
    ATTRS,
    CITIES,
    COLOURS,
    GLOSSARY,
    HELLO,
    JOBS,
    NAMES,
    NOUNS,
    THINGS,
    WORDS,
    code_key,
    digits,
    distinct,
    place,
    word_key,
)

# each: f(r, n) -> (facts in order, questions [(q, a)], inline)   inline: facts are sentences that
# may sit in prose


def needle(r, n):
    attr = r.choice(ATTRS)
    mixed = r.random() < 0.3
    keys = distinct(r, place, n)
    facts, qa = [], []
    for k in keys:
        a = r.choice(ATTRS) if mixed else attr
        v = digits(r, r.choice((4, 4, 4, 4, 3, 5)))
        facts.append(f"The {a} of the {k} is {v}.")
        short = r.random() < 0.25
        qa.append(
            (
                f"What is the {a} of the {k}?" + (" Answer with the number only." if short else ""),
                v if short else f"The {a} of the {k} is {v}.",
            )
        )
    return facts, qa, True


def passkey(r, n):
    v = digits(r, 5)
    return (
        [f"The pass key is {v}. Remember it. {v} is the pass key."],
        [
            (
                r.choice(["What is the pass key?", "What is the pass key in the text above?"]),
                f"The pass key is {v}.",
            )
        ],
        True,
    )


def people(r, n):
    facts, qa = [], []
    kind = r.randrange(4)
    for name in r.sample(NAMES, min(n, len(NAMES))):
        k = kind if kind < 3 else r.randrange(3)
        if k == 0:
            c = r.choice(CITIES)
            facts.append(f"{name} lives in {c}.")
            qa.append((f"Where does {name} live?", f"{name} lives in {c}."))
        elif k == 1:
            j = r.choice(JOBS)
            facts.append(f"{name} works as a {j}.")
            qa.append((f"What does {name} do?", f"{name} works as a {j}."))
        else:
            t, c = r.choice(THINGS), r.choice(COLOURS)
            facts.append(f"{name} has a {c} {t}.")
            qa.append((f"What does {name} have?", f"{name} has a {c} {t}."))
    return facts, qa, True


def table(r, n):
    style = r.randrange(4)
    keys = distinct(r, code_key if style in (0, 3) else word_key, n)
    vals = [
        (
            digits(r, 4)
            if style != 3
            else r.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") + str(r.randrange(10, 100))
        )
        for _ in keys
    ]
    sep = (" = ", ": ", " -> ", ": ")[style]
    facts = [k + sep + v for k, v in zip(keys, vals)]
    q = r.choice(("What is the value of {}?", "Find {} in the list.", "{}?"))
    return facts, [(q.format(k), k + sep + v) for k, v in zip(keys, vals)], False


def tracking(r, n):
    """Variable chains; the answer walks the chain, one look-up per step."""
    facts, qa, left = [], [], n
    names = iter(distinct(r, code_key, n))
    chains = []
    while left > 0:
        m = min(left, r.randrange(1, 5))
        left -= m
        vs = [next(names) for _ in range(m)]
        v = digits(r, 4)
        chains.append([f"{vs[0]} = {v}."] + [f"{b} = {a}." for a, b in zip(vs, vs[1:])])
        for i in range(m):
            qa.append((f"What is the final value of {vs[i]}?", " = ".join(vs[i::-1]) + f" = {v}."))
    while chains:  # interleave the chains, each in its own order
        c = r.choice(chains)
        facts.append(c.pop(0))
        if not c:
            chains.remove(c)
    return facts, qa, True


def multivalue(r, n):
    facts, qa = [], []
    for k in distinct(r, place, max(1, n // 3)):
        a = r.choice(ATTRS)
        vs = [digits(r, 4) for _ in range(r.choice((2, 3, 3, 4)))]
        facts += [f"One {a} of the {k} is {v}." for v in vs]
        qa.append((f"List every {a} of the {k}.", ", ".join(vs) + "."))
    return facts, qa, True


def common_word(r, n):
    ws = r.sample(WORDS, max(4, n))
    bag = ws[1:] + [ws[0]] * max(4, n // 3)
    r.shuffle(bag)
    return ["Words: " + " ".join(bag) + "."], [("Which word comes most often?", ws[0])], False


FAMILIES = dict(
    needle=needle,
    passkey=passkey,
    people=people,
    table=table,
    tracking=tracking,
    multivalue=multivalue,
    common_word=common_word,
)


def copy_task(r, sents):
    k = r.randrange(5)
    if k == 0:
        x = " ".join(r.choice(WORDS) for _ in range(r.randrange(2, 16)))
    elif k == 1:
        x = " ".join(digits(r, r.choice((2, 4))) for _ in range(r.randrange(2, 8)))
    elif k == 2:
        x = ", ".join(r.choice(NAMES) for _ in range(r.randrange(2, 8)))
    elif k == 3:
        x = r.choice(sents)
    else:
        x = " ".join(code_key(r) for _ in range(r.randrange(2, 8)))
    return [], [(r.choice(("Repeat: ", "Copy this text: ", "Say this again: ")) + x, x)], False


def chat(r, sents):
    k = r.randrange(10)
    if k == 0:
        q = r.choice(
            (
                "Hello",
                "Hello!",
                "Hi",
                "Hi!",
                "Hi there",
                "Good morning",
                "Hello, how are you?",
                "Hey",
            )
        )
        return q, "Hello! " + HELLO
    if k == 1:
        q = r.choice(
            (
                "Who are you?",
                "What are you?",
                "What is your name?",
                "What can you do?",
                "Tell me about yourself.",
                "What is Weir?",
                "Help",
            )
        )
        return q, HELLO
    if k == 2:
        a = r.randrange(0, 20)
        b = a + r.randrange(2, 12)
        return (
            r.choice(("Count from {} to {}.", "Please count from {} to {}.")).format(a, b),
            ", ".join(map(str, range(a, b + 1))) + ".",
        )
    if k == 3:
        w = r.choice(list(GLOSSARY))
        art = (
            ""
            if w in ("winter", "summer", "war", "peace", "snow")
            else "the " if w in ("sun", "moon") else "a "
        )
        return (
            r.choice((f"What is {art}{w}?", f"Define {w}.", f"Explain the word {w}.")),
            GLOSSARY[w],
        )
    if k == 4:
        s = r.choice(sents).split(" ")
        c = r.randrange(2, max(3, len(s) - 2))
        return "Continue this sentence: " + " ".join(s[:c]), " ".join(s[c:])
    if k == 5:
        p = r.sample(NAMES, 3)
        pl = ["in the " + x for x in r.sample(NOUNS, 3)]
        verb = r.choice(("is", "sits", "waits", "works"))
        i = r.randrange(3)
        text = " ".join(f"{a} {verb} {b}." for a, b in zip(p, pl))
        if r.random() < 0.5:
            return f"{text}\n\nWhere is {p[i]}?", f"{p[i]} {verb} {pl[i]}."
        return f"{text}\n\nWho {verb} {pl[i]}?", f"{p[i]} {verb} {pl[i]}."
    if k == 6:
        w = r.choice(("Thank you!", "Thanks", "Thank you very much."))
        return w, "You are welcome."
    if k == 7:
        xs = r.sample(WORDS, r.randrange(3, 8))
        if r.random() < 0.5:
            return "What is the first word of this list? " + ", ".join(xs) + ".", xs[0]
        return "What is the last word of this list? " + ", ".join(xs) + ".", xs[-1]
    if k == 8:
        return r.choice(("Goodbye", "Bye", "Good night")), "Goodbye!"
    return r.choice(
        (
            "Tell me a story.",
            "Write a sentence.",
            "Tell me something.",
            "Write something from the novel.",
        )
    ), r.choice(sents)
