extension Group {
  static let conditionalDate = Group(
    id: "conditional-lm", count: 5,
    inapplicable: [
      Omission(
        ownConditions, "conditional-lm-fresh", "conditional-lm-fresh-earlier",
        "conditional-lm-stale", "conditional-lm-fresh-no-lm", "conditional-lm-fresh-rfc850")
    ])

  private static let ownConditions = "a job cannot be conditional"

  static let conditionalTag = Group(
    id: "conditional-inm", count: 21,
    cases: [
      Case(
        "conditional-etag-vary-headers",
        .first([.expires(1), "ETag: \"abcdef\"", .date(), "Vary: Abc"], ["Abc": "123"]),
        .next(.tagged, after: 3, ["Abc": "123"])),
      Case(
        "conditional-etag-strong-generate",
        ["Cache-Control: max-age=2", .date(), "ETag: \"abcdef\""], after: 3, .tagged),
      Case(
        "conditional-etag-weak-generate-weak",
        ["Cache-Control: max-age=2", .date(), "ETag: W/\"abcdef\""], after: 3, .tagged),
    ],
    unheld: [
      Omission(
        "only matching responses are validated", "conditional-etag-vary-headers-mismatch"),
      Omission(
        "the tag is sent back unchanged", "conditional-etag-strong-generate-unquoted"),
    ],
    inapplicable: [
      Omission(
        ownConditions, "conditional-etag-strong-respond", "conditional-304-etag",
        "conditional-etag-precedence", "conditional-etag-strong-respond-obs-text",
        "conditional-etag-quoted-respond-unquoted", "conditional-etag-unquoted-respond-unquoted",
        "conditional-etag-unquoted-respond-quoted", "conditional-etag-weak-respond",
        "conditional-etag-weak-respond-lowercase", "conditional-etag-weak-respond-backslash",
        "conditional-etag-weak-respond-omit-slash",
        "conditional-etag-strong-respond-multiple-first",
        "conditional-etag-strong-respond-multiple-second",
        "conditional-etag-strong-respond-multiple-last", "conditional-etag-forward",
        "conditional-etag-forward-unquoted")
    ])

  static let update304 = Group(
    id: "update304", count: 21,
    cases: [
      Case(
        "304-lm-use-stored-Test-Header",
        .first([
          "Cache-Control: max-age=2", "Last-Modified: Wed, 01 Jan 2020 00:00:00 GMT", .date(),
          "Test-Header: a",
        ]),
        .next(.dated, after: 3, answer: ["Last-Modified: Wed, 01 Jan 2020 00:00:00 GMT", .date()])),
      Case(
        "304-etag-update-response-Cache-Control",
        .first([.date(), "Cache-Control: max-age=1", "ETag: \"abc\""]),
        .next(
          .tagged, after: 3, answer: [.date(), "Cache-Control: max-age=3600", "ETag: \"abc\""]),
        .next(.cached, after: 2)),
      Case(
        "304-etag-update-response-Content-Length",
        .first([.date(), "Cache-Control: max-age=4", "ETag: \"abc\""]),
        .next(
          .tagged, after: 5,
          answer: [.date(), "Content-Length: 10", "Cache-Control: max-age=4", "ETag: \"abc\""]),
        .next(.cached)),
    ],
    unheld: [
      Omission(
        "a 304 with another tag is about another response (RFC 9111 section 4.3.4)",
        "304-etag-update-response-ETag")
    ],
    inapplicable: [
      Omission(
        passedOn,
        ids: [
          "Test-Header", "X-Test-Header", "Content-Foo", "X-Content-Foo", "Content-Encoding",
          "Content-Location", "Content-MD5", "Content-Range", "Content-Security-Policy",
          "Content-Type", "Clear-Site-Data", "Expires", "Public-Key-Pins", "Set-Cookie",
          "Set-Cookie2", "X-Frame-Options", "X-XSS-Protection",
        ].map { "304-etag-update-response-\($0)" })
    ])

  static let passedOn = "clients do not receive the origin's header fields"
}
