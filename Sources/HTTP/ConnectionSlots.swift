/// The number of connection slots, for regular clients and for probes.
struct ConnectionSlots: Sendable, Equatable {
  enum Kind: Sendable { case regular, probe }

  let regular: Int
  /// Additional slots. Only probes are answered on them.
  let probes: Int

  init(_ configuration: HTTPServer.Configuration) {
    regular = configuration.maxConnections
    probes = configuration.probeSlots
  }

  /// Returns the kind of slot for the next client. A regular slot is used if one is free or can be freed by
  /// evicting a connection that waits for a request. Otherwise a slot for probes is used by the same rule.
  ///
  /// - Parameter evict: Evicts connections of a kind. Returns whether there was one.
  func nextSlot(taken: Int, byProbes: Int, evict: (Kind) -> Bool) -> Kind? {
    if taken < regular || evict(.regular) { return .regular }
    if byProbes < probes || (probes > 0 && evict(.probe)) { return .probe }
    return nil
  }

  /// How many connections are evicted at once, so that a full table is not searched for each client.
  func evictionBatch(of kind: Kind) -> Int { max(1, (kind == .regular ? regular : probes) / 64) }
}
