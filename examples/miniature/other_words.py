"""Other words that players use for the characters, motions and places of the world, and what they mean here.

A model knows those whose meanings occur in its training data.
"""

OTHER_WORDS = {
    # characters, by their looks
    **dict.fromkeys(("girl with pink hair", "pink hair", "girl with twin tails", "twin tails", "pigtails"), "Mika"),
    **dict.fromkeys(("boy with blue hair", "blue hair", "blue boy", "blue haired boy"), "Haru"),
    **dict.fromkeys(("girl with white hair", "white hair", "white haired girl"), "Yuki"),
    **dict.fromkeys(("boy with cat ears", "cat ears", "cat boy", "cat", "boy with black hair", "black hair"), "Kuro"),
    **dict.fromkeys(("boy with glasses", "glasses", "blond boy", "boy with blond hair"), "Sora"),
    **dict.fromkeys(("girl with red hair", "red hair", "redhead", "red haired girl"), "Rin"),
    **dict.fromkeys(("girl with buns", "buns", "girl with two buns"), "Nana"),
    **dict.fromkeys(("boy with cap", "cap", "boy in cap", "baseball cap"), "Taro"),
    **dict.fromkeys(("girl with headphones", "headphones", "girl with turquoise hair", "turquoise hair"), "Aoi"),
    **dict.fromkeys(("girl with straw hat", "straw hat", "girl with braids", "braids", "blonde girl"), "Emi"),
    **dict.fromkeys(("boy with mohawk", "mohawk", "boy with green hair", "green hair", "punk"), "Ken"),
    **dict.fromkeys(("girl with witch hat", "witch hat", "witch", "girl with purple hair", "purple hair"), "Luna"),
    **dict.fromkeys(("girl with bunny ears", "bunny ears", "bunny girl", "bunny", "rabbit"), "Momo"),
    **dict.fromkeys(("boy with scarf", "scarf", "boy with ponytail"), "Jin"),
    **dict.fromkeys(("girl with curls", "curls", "girl with curly hair", "curly hair", "girl with bow"), "Hana"),
    **dict.fromkeys(("boy with fox ears", "fox ears", "fox boy", "fox", "boy with orange hair", "orange hair"), "Riku"),
    # motions
    **dict.fromkeys(("sprint", "dash", "race", "jog", "ran", "rush", "hurry", "chase"), "run"),
    **dict.fromkeys(("stroll", "wander", "march", "tiptoe", "step", "hike"), "walk"),
    **dict.fromkeys(("leap", "hop", "bounce", "jump up"), "jump"),
    **dict.fromkeys(("greet", "say hello", "wave hello", "wave goodbye"), "wave"),
    **dict.fromkeys(("twirl", "turn around", "whirl", "rotate", "spun"), "spin"),
    **dict.fromkeys(("boogie", "dance around"), "dance"),
    **dict.fromkeys(("fall", "fall down", "fell", "fell over", "trip", "stumble", "tumble", "collapse"), "fall over"),
    **dict.fromkeys(("sit", "sat", "sat down", "rest", "take a seat"), "sit down"),
    **dict.fromkeys(("fly", "flew", "ride a broom", "fly by broom", "broom", "flew on a broom"), "fly on a broom"),
    **dict.fromkeys(("fight", "wield a sword", "slash", "sword", "swung a sword"), "swing a sword"),
    **dict.fromkeys(("embrace", "cuddle", "hold tight"), "hug"),
    **dict.fromkeys(("put on a coat", "wear a raincoat", "put raincoat on"), "put on a raincoat"),
    **dict.fromkeys(("take off a coat", "remove a raincoat", "took off a raincoat"), "take off a raincoat"),
    **dict.fromkeys(("put up a flag", "raise a flag", "flag"), "plant a flag"),
    # manners
    **dict.fromkeys(("slowly", "gently", "calmly", "softly"), "slightly"),
    **dict.fromkeys(("fast", "quickly", "swiftly", "hard"), "strongly"),
    **dict.fromkeys(("wildly", "very fast", "madly"), "intensely"),
    # places and times
    **dict.fromkeys(("sea", "shore", "seaside", "ocean", "sand", "coast"), "beach"),
    **dict.fromkeys(("field", "grass", "park", "garden", "countryside"), "meadow"),
    **dict.fromkeys(("street", "city", "town", "road", "downtown"), "city street"),
    **dict.fromkeys(("school", "schoolroom", "class"), "classroom"),
    **dict.fromkeys(("snow", "hill", "mountain", "winter", "snowy mountain"), "snowy hill"),
    **dict.fromkeys(("temple", "torii", "gate"), "shrine"),
    **dict.fromkeys(("day", "morning", "noon", "sun", "sunny", "afternoon", "day time", "by day"), "daytime"),
    **dict.fromkeys(("dark", "evening", "midnight", "moon", "moonlight", "by night", "night time"), "night"),
}
"""Meanings by the other words, which are read without their endings and articles."""
