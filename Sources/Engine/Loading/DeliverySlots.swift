internal import Jobs
internal import Synchronization
internal import Waiting

/// Limits deliveries: owners share the slots, a host named by clients gets two at a time, and each destination has a
/// circuit breaker.
final class DeliverySlots: Sendable {
  /// Deliveries that run at the same time.
  static let atOnce = 64
  /// Deliveries to one host that clients named. The operator's own destinations are limited only by the slots.
  static let perHost = 2

  /// The right to one delivery. It is released when the value is destroyed.
  struct Slot: Sendable {
    fileprivate let host: FairSemaphore<Owner>.Permit?
    fileprivate let slot: FairSemaphore<Owner>.Permit
  }

  private let slots = FairSemaphore<Owner>(.keepingQuarter(of: atOnce))
  private let hosts = Mutex<[String: (slots: FairSemaphore<Owner>, users: Int)]>([:])
  /// The circuit breakers. Their limits of transfers are never reached, because the slots are narrower.
  private let circuits: OriginLimits

  init() {
    var rules = OriginRules()
    (rules.maxTransfers, rules.unprovenTransfers) = (Self.atOnce, Self.atOnce)
    circuits = OriginLimits(rules, onPause: { _, _ in }, onRoom: {})
  }

  /// Waits for a slot. Returns nil if the task is cancelled.
  func acquire(_ place: DeliveryRequest.Target, for owner: Owner) async -> Slot? {
    var host: FairSemaphore<Owner>.Permit?
    if case .put(let url, _) = place {
      guard let permit = await acquire(host: url.authority, for: owner) else { return nil }
      host = permit
    }
    guard let slot = await slots.acquire(for: owner) else { return nil }
    return Slot(host: host, slot: slot)
  }

  private func acquire(host: String, for owner: Owner) async -> FairSemaphore<Owner>.Permit? {
    let slots = hosts.withLock { hosts in
      hosts[host, default: (FairSemaphore(.keepingQuarter(of: Self.perHost)), 0)].users += 1
      return hosts[host]?.slots
    }
    defer { releaseHost(host) }
    return await slots?.acquire(for: owner)
  }

  /// Forgets unused hosts.
  private func releaseHost(_ host: String) {
    hosts.withLock { hosts in
      hosts[host]?.users -= 1
      guard hosts.count > 1_024 else { return }
      hosts = hosts.filter { $0.value.users > 0 || !$0.value.slots.isIdle }
    }
  }

  /// Permits one request to a destination; the permit reports its outcome to the circuit breaker.
  /// - Throws: `.unreachable` while the circuit breaker is open.
  func permit(
    _ place: DeliveryRequest.Target, for owner: Owner
  ) async throws(FetchError) -> OriginPermit {
    try await circuits.admit(place.circuit, for: owner)
  }
}

extension DeliveryRequest.Target {
  fileprivate var circuit: String {
    switch self {
    case .put(let url, _): url.origin
    // No origin has this form.
    case .profile(let name, _): "destination \(name)"
    }
  }

  var path: String {
    switch self {
    case .put(let url, _): String(url.pathAndQuery.prefix { $0 != "?" })
    case .profile: ""
    }
  }
}
