import Testing

/// A group of the suite, each of its ids once.
struct Group: Sendable, CustomTestStringConvertible {
  /// Its id in the suite.
  let id: String
  /// How many cases it has there.
  let count: Int
  /// Those that the service is held to.
  var cases: [Case] = []
  /// Those that ask what a cache does where the standard leaves it open, or recommends only, and
  /// that the service answers otherwise.
  var unheld: [Omission] = []
  /// Those that don't apply to a service which fetches for itself and whose clients submit jobs.
  var inapplicable: [Omission] = []

  var testDescription: String { id }

  /// Every id that is accounted for.
  var ids: [String] {
    cases.map(\.id) + unheld.flatMap(\.ids) + inapplicable.flatMap(\.ids)
  }

  static let all: [Group] = [
    .ccFreshness, .ccParse, .ageParse, .expires, .expiresParse, .ccResponse, .stale, .heuristic,
    .status, .ccRequest, .pragma, .vary, .varyParse, .conditionalDate, .conditionalTag, .headers,
    .update304, .partial, .auth, .other, .interim, .method, .updateHead, .invalidation, .cdn,
  ]
}

/// Cases that are not asserted, and why.
struct Omission: Sendable {
  let reason: String
  let ids: [String]

  init(_ reason: String, _ ids: String...) {
    self.reason = reason
    self.ids = ids
  }

  init(_ reason: String, ids: [String]) {
    self.reason = reason
    self.ids = ids
  }
}
