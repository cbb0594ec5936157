import Testing

/// A group of the caching tests. Each ID occurs once.
struct Group: Sendable, CustomTestStringConvertible {
  /// The group's ID in the original tests.
  let id: String
  /// The number of cases that the original group has.
  let count: Int
  /// Cases that the service has to pass.
  var cases: [Case] = []
  /// Cases that the service fails on purpose: the standard leaves the behavior open or only recommends it.
  var unheld: [Omission] = []
  /// Cases that do not apply, because the service fetches for itself and its clients submit jobs.
  var inapplicable: [Omission] = []

  var testDescription: String { id }

  /// The IDs of all cases, passed or omitted.
  var ids: [String] {
    cases.map(\.id) + unheld.flatMap(\.ids) + inapplicable.flatMap(\.ids)
  }

  static let all: [Group] = [
    .ccFreshness, .ccParse, .ageParse, .expires, .expiresParse, .ccResponse, .stale, .heuristic,
    .status, .ccRequest, .pragma, .vary, .varyParse, .conditionalDate, .conditionalTag, .headers,
    .update304, .partial, .auth, .other, .interim, .method, .updateHead, .invalidation, .cdn,
  ]
}

/// Cases that are not checked, with the reason.
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
