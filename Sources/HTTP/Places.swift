/// How many connections may be open, and for whom.
struct Places: Sendable, Equatable {
  /// What a connection is good for.
  enum Kind: Sendable { case regular, probe }

  let regular: Int
  /// Beyond those; only probes are answered on them.
  let probes: Int

  init(_ configuration: HTTPServer.Configuration) {
    regular = configuration.maxConnections
    probes = configuration.probePlaces
  }

  /// The place that the next client gets: a regular one where it is free, or where a connection that only waits for a
  /// request can be closed for it; else one for probes, by the same rule.
  ///
  /// - Parameter evict: closes such connections; says whether there was one.
  func next(taken: Int, byProbes: Int, evict: (Kind) -> Bool) -> Kind? {
    if taken < regular || evict(.regular) { return .regular }
    if byProbes < probes || (probes > 0 && evict(.probe)) { return .probe }
    return nil
  }

  /// How many connections of a kind are closed at once, so that a full table is not looked through for each client.
  func evicted(of kind: Kind) -> Int { max(1, (kind == .regular ? regular : probes) / 64) }
}
