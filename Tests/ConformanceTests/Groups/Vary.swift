extension Group {
  static let vary = Group(
    id: "vary", count: 20,
    cases: [
      varied("vary-match", "Foo", ["Foo": "1"], ["Foo": "1"], .cached),
      varied("vary-no-match", "Foo", ["Foo": "1"], ["Foo": "2"], .asked),
      varied("vary-omit-stored", "Foo", [:], ["Foo": "1"], .asked),
      varied("vary-omit", "Foo", ["Foo": "1"], [:], .asked),
      Case(
        "vary-invalidate", .first(varying("Foo"), ["Foo": "1"]),
        .next(.asked, ["Foo": "2"], answer: varying("Foo")), .next(.cached, ["Foo": "1"])),
      // The other field is one that cannot be a credential. Responses to other fields are stored separately
      // for each owner.
      varied(
        "vary-cache-key", "Foo", ["Foo": "1", "Accept": "2"], ["Foo": "1", "Accept": "3"], .cached),
      varied("vary-2-match", "Foo, Bar", two, two, .cached),
      varied("vary-2-no-match", "Foo, Bar", two, ["Foo": "2", "Bar": "abc"], .asked),
      varied("vary-2-match-omit", "Foo, Bar", two, [:], .asked),
      varied("vary-3-match", "Foo, Bar, Baz", three, three, .cached),
      varied(
        "vary-3-no-match", "Foo, Bar, Baz", three, ["Foo": "2", "Bar": "abc", "Baz": "789"],
        .asked),
      varied(
        "vary-3-order", "Foo, Bar, Baz", three, ["Foo": "1", "Baz": "789", "Bar": "abcde"], .asked),
      varied("vary-3-omit", "Foo, Bar, Baz", outer, outer, .cached),
      varied("vary-star", "*", outer, outer, .asked),
      language("vary-normalise-lang-order", "de, en"),
      language("vary-normalise-lang-case", "eN, De"),
      language("vary-normalise-lang-space", " en ,   de"),
      varied("vary-normalise-space", "Foo", ["Foo": "1,2"], ["Foo": " 1, 2 "], .cached),
    ],
    unheld: [
      Omission("languages are compared, not negotiated", "vary-normalise-lang-select")
    ],
    inapplicable: [
      Omission("a job has each header field once", "vary-normalise-combine")
    ])

  static let varyParse = Group(
    id: "vary-parse", count: 7,
    cases: [
      starred("vary-syntax-star", ["Vary: *"]),
      starred("vary-syntax-star-star", ["Vary: *, *"]),
      starred("vary-syntax-star-star-lines", ["Vary: *", "Vary: *"]),
      starred("vary-syntax-empty-star", ["Vary: , *"]),
      starred("vary-syntax-empty-star-lines", ["Vary: ", "Vary: *"]),
      starred("vary-syntax-star-foo", ["Vary: *, Foo"]),
      starred("vary-syntax-foo-star", ["Vary: Foo, *"]),
    ])

  private static let two = ["Foo": "1", "Bar": "abc"]
  private static let three = ["Foo": "1", "Bar": "abc", "Baz": "789"]
  private static let outer = ["Foo": "1", "Baz": "789"]

  private static let lasting: [OriginField] = [
    "Cache-Control: max-age=5000", .modified(-3000), .date(),
  ]

  private static func varying(_ names: String) -> [OriginField] {
    lasting + [OriginField("Vary: \(names)")]
  }

  private static func varied(
    _ id: String, _ names: String, _ first: [String: String], _ second: [String: String],
    _ expected: Expected
  ) -> Case {
    Case(id, .first(varying(names), first), .next(expected, second))
  }

  private static func language(_ id: String, _ second: String) -> Case {
    varied(
      id, "Accept-Language", ["Accept-Language": "en, de"], ["Accept-Language": second], .cached)
  }

  private static func starred(_ id: String, _ lines: [OriginField]) -> Case {
    Case(id, .first(lasting + lines, outer), .next(.asked, outer))
  }
}
