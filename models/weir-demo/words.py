"""Words of the synthetic conversations, and draws of names, places and numbers."""

NOUNS = """
    mill house bridge tower garden harbour castle cellar school market church stable library
    station bakery kitchen palace barn inn farm forge chapel office lodge cottage warehouse
    theatre hospital museum prison monastery lighthouse workshop hotel hall barracks vault gate
    attic shop shed boat ship wagon carriage cabin camp fort well orchard vineyard quarry mine
    canal dock ferry hut manor courtyard stall archive treasury brewery dairy laundry studio
    greenhouse observatory academy embassy depot depot arsenal chest box safe drawer cabinet
    locker trunk crate barrel desk
""".split()
ADJS = """
    old new red blue green white black grey small great long tall quiet north south east west
    upper lower stone wooden iron golden silver dark bright cold warm broken hidden royal empty
    round narrow wide high low yellow brown first second third last lonely ancient rusty painted
    little big deep heavy
""".split()
ATTRS = [
    "gate code",
    "secret number",
    "door code",
    "number",
    "code",
    "pass code",
    "key number",
    "price",
    "box number",
    "magic number",
    "serial number",
    "room number",
    "password",
    "phone number",
    "account number",
    "lucky number",
]
NAMES = """
    Anna Boris Clara David Elena Fedor Greta Henry Irene James Katya Lucas Maria Nikolai Olga
    Peter Rosa Simon Tanya Victor Wanda Yuri Zoe Alice Bruno Cecil Dora Emil Flora George Helen
    Ivan Julia Karl Laura Martin Nina Oscar Paula Robert Sonya Thomas Ursula Vera William Xenia
    Adam Bella Conrad Diana Edgar Fanny Gustav Hanna Igor Jane Kira Leon Mary Nora Otto Pierre
    Rita Stefan Tom Una Vasili Walter Natasha Andrew Kate Dennis Marcus Julian Lydia Rose Hugo
    Ruth Max Ida
""".split()
CITIES = """
    Moscow Paris London Rome Vienna Berlin Madrid Lisbon Dublin Oslo Prague Warsaw Athens Cairo
    Geneva Milan Venice Naples Kiev Riga Bergen Hamburg Munich Bremen Dresden Zurich Basel Lyon
    Nice Bordeaux Oxford York Bath Verona Padua Messina Florence Smolensk Odessa Kazan
    Petersburg Ghent Delft
""".split()
COLOURS = "red blue green white black grey yellow brown purple orange pink golden silver".split()
JOBS = """
    baker doctor sailor teacher soldier painter farmer tailor miller singer writer lawyer priest
    nurse cook hunter gardener carpenter smith clerk judge captain fisherman shepherd weaver
    printer potter mason porter guard
""".split()
THINGS = """
    horse dog cat hat coat boat carriage book lamp cup ring sword cloak umbrella bag scarf bell
    clock chair table mirror pen knife blanket shawl fan watch violin drum flag
""".split()
FRUIT = """
    apple pear plum cherry lemon orange grape melon peach fig nut berry bread butter cheese milk
    honey sugar salt pepper tea coffee wine beer water rice corn bean onion carrot potato
    cabbage fish meat egg cake soup
""".split()
WORDS = sorted(set(NOUNS + ADJS + COLOURS + JOBS + THINGS + FRUIT))
HELLO = (
    "I am the Weir demo model, a very small language model. "
    "I can find things in a text that you give me."
)
GLOSSARY = {
    "lantern": "A lantern is a lamp in a case that can be carried.",
    "bridge": "A bridge is a road built over water or a valley.",
    "mill": "A mill is a building where grain is ground into flour.",
    "harbour": "A harbour is a safe place for ships near the shore.",
    "baker": "A baker is a person who makes bread.",
    "sailor": "A sailor is a person who works on a ship.",
    "weir": "A weir is a low dam " "that keeps the water of a river at one level.",
    "river": "A river is a long stream of water that flows to the sea.",
    "clock": "A clock is a machine that shows the time.",
    "castle": "A castle is a large strong house with walls and towers.",
    "doctor": "A doctor is a person who heals the sick.",
    "soldier": "A soldier is a person who serves in an army.",
    "library": "A library is a house full of books.",
    "garden": "A garden is a piece of land where flowers grow.",
    "winter": "Winter is the cold season of the year.",
    "summer": "Summer is the warm season of the year.",
    "horse": "A horse is a large " "animal that people ride.",
    "dog": "A dog is an animal that guards the house.",
    "king": "A king is a man who rules a country.",
    "queen": "A queen is a woman who rules a country.",
    "sword": "A sword is a long weapon with a sharp blade.",
    "cellar": "A cellar is a " "cold room under a house.",
    "teacher": "A teacher is a person who helps others to learn.",
    "ship": "A ship is a large boat for the sea.",
    "cache": "A cache is a small store that keeps things near for quick use.",
    "token": "A token is a small piece of text.",
    "letter": "A letter is a message written on paper.",
    "war": "War is a fight between countries.",
    "peace": "Peace is the time without war.",
    "judge": "A judge is a person who decides in a court.",
    "farm": "A farm is land where food is grown.",
    "snow": "Snow is frozen rain that " "falls in white flakes.",
    "sun": "The sun is the star that gives us light.",
    "moon": "The moon is the light of the night sky.",
}


def digits(r, n=4):
    return str(r.randrange(10 ** (n - 1), 10**n))


def place(r):
    return r.choice(NOUNS) if r.random() < 0.25 else r.choice(ADJS) + " " + r.choice(NOUNS)


def distinct(r, f, n):
    seen = []
    while len(seen) < n:
        x = f(r)
        if x not in seen:
            seen.append(x)
    return seen


def word_key(r):
    return r.choice(ADJS) + "-" + r.choice(NOUNS) if r.random() < 0.5 else r.choice(WORDS)


def code_key(r):
    return r.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") + str(r.randrange(10, 100))
