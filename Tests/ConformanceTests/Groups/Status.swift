extension Group {
  private static let old: [OriginField] = [.modified(-86_400), .date()]

  static let heuristic = Group(
    id: "heuristic", count: 27,
    cases: [
      Case("heuristic-200-cached", old, .cached),
      Case("heuristic-203-cached", .first(old).with(\.status, 203), .next(.cached)),
    ] + [201, 202, 403, 502, 503, 504, 599].map(failing)
      + [60, 300, 600, 1200, 1800, 3600, 43_200, 86_400].map(changed),
    unheld: [
      Omission(
        "a tenth of it is shorter than the case's pause", "heuristic-delta-5", "heuristic-delta-10",
        "heuristic-delta-30"),
      Omission(
        withoutImage, "heuristic-204-cached", "heuristic-404-cached", "heuristic-405-cached",
        "heuristic-410-cached", "heuristic-414-cached", "heuristic-501-cached",
        "heuristic-599-cached"),
    ])

  private static let withoutImage = "a response without an image is a failure and is never stored"

  private static func failing(_ status: Int) -> Case {
    Case(
      "heuristic-\(status)-not_cached",
      .first(old).with(\.status, status).with(\.expected, .failed),
      .next(.failed, answer: old).with(\.status, status))
  }

  private static func changed(_ seconds: Int) -> Case {
    Case("heuristic-delta-\(seconds)", [.modified(-Int64(seconds)), .date()], after: 3, .cached)
  }

  private static let withImage = [200, 203]
  private static let failures = [
    204, 299, 301, 302, 303, 307, 308, 400, 404, 410, 499, 500, 502, 503, 504, 599,
  ]

  static let status = Group(
    id: "status", count: 38,
    cases: withImage.flatMap { status in
      [
        Case(
          "status-\(status)-fresh",
          .first(["Cache-Control: max-age=100000", .date()]).with(\.status, status),
          .next(.cached)),
        Case(
          "status-\(status)-stale",
          .first([.expires(-5000), .modified(-100_000), .date()]).with(\.status, status),
          .next(.asked)),
      ]
    }
      + failures.map { status in
        Case(
          "status-\(status)-stale",
          .first([.expires(-5000), .modified(-100_000), .date()]).with(\.status, status)
            .with(\.expected, .failed), .next(.asked))
      } + [
        Case(
          "status-599-must-understand",
          .first(["Cache-Control: max-age=3600, no-store, must-understand"]).with(\.status, 599)
            .with(\.expected, .failed), .next(.asked)),
        Case(
          "status-200-must-understand", ["Cache-Control: max-age=3600, no-store, must-understand"],
          .cached),
      ],
    unheld: [Omission(withoutImage, ids: failures.map { "status-\($0)-fresh" })])
}
