/// A capacity that is divided among clients. A client may use all of it while no other client needs some, and
/// half of it otherwise. A part can be reserved for clients that hold nothing. A value type: the caller
/// synchronizes access.
///
/// Another client counts as needing capacity if it holds a part, or if it was refused or passed to
/// ``recordDemand(of:at:)`` within the last minute. Thus a client that arrives late gets capacity as soon as the
/// client that holds all of it releases some.
package struct SharedCapacity<Client: Hashable & Sendable>: Sendable {
  /// How long a refused client counts as needing capacity.
  package static var demandLifetime: Duration { .seconds(60) }

  /// The total amount that clients hold.
  package private(set) var held = 0
  private var shares: [Client: Int] = [:]
  /// The last two clients that were refused or recorded. Two are enough, because one of them differs from any
  /// client that asks.
  private var demands: [(client: Client, at: Timestamp)] = []

  package init() {}

  /// Returns the amount that a client holds.
  package func share(of client: Client) -> Int { shares[client] ?? 0 }

  /// The clients that hold a part.
  package var clients: some Collection<Client> { shares.keys }

  /// Returns how much more a client may hold; negative if it holds too much.
  ///
  /// - Parameter kept: The amount reserved for clients that hold nothing. The first amount of such a client
  ///   may come from it.
  package func available(
    for client: Client, within capacity: Int, keeping kept: Int = 0, at moment: Timestamp
  ) -> Int {
    let share = share(of: client)
    return min(
      capacity - held - (share > 0 ? kept : 0),
      (isNeeded(besides: client, at: moment) ? capacity - capacity / 2 : capacity) - share)
  }

  /// Whether the client may hold `amount` more. If not, records that the client needs capacity.
  package mutating func hasCapacity(
    for amount: Int, of client: Client, within capacity: Int, keeping kept: Int = 0,
    at moment: Timestamp
  ) -> Bool {
    if amount <= available(for: client, within: capacity, keeping: kept, at: moment) { return true }
    recordDemand(of: client, at: moment)
    return false
  }

  /// Also checks the client's own limit. A client that reached its own limit does not count as needing
  /// capacity.
  package mutating func hasCapacity(
    for amount: Int, of client: Client, within capacity: QueueCapacity, at moment: Timestamp
  ) -> Bool {
    amount <= capacity.ofOwner - share(of: client)
      && hasCapacity(for: amount, of: client, within: capacity.all, at: moment)
  }

  /// Adds `amount` to what the client holds; returns false if there is not enough capacity.
  package mutating func acquire(
    _ amount: Int, for client: Client, within capacity: Int, keeping kept: Int = 0,
    at moment: Timestamp
  ) -> Bool {
    guard hasCapacity(for: amount, of: client, within: capacity, keeping: kept, at: moment) else {
      return false
    }
    acquireUnchecked(amount, for: client)
    return true
  }

  /// Adds `amount` to what the client holds without a check, for amounts that were granted before or must not
  /// fail.
  package mutating func acquireUnchecked(_ amount: Int, for client: Client) {
    held += amount
    shares[client, default: 0] += amount
  }

  /// Releases `amount` of the client.
  package mutating func release(_ amount: Int, of client: Client) {
    held -= amount
    let left = share(of: client) - amount
    shares[client] = left > 0 ? left : nil
  }

  /// Records that the client needs capacity, or that it held some until now.
  package mutating func recordDemand(of client: Client, at moment: Timestamp) {
    demands.removeAll { $0.client == client }
    demands = demands.suffix(1) + [(client, moment)]
  }

  /// Returns when a client may hold more without a release, because another client's need expires; nil if
  /// there is no such time.
  package func nextChange(at moment: Timestamp) -> Timestamp? {
    demands.map { $0.at + Self.demandLifetime }.filter { $0 > moment }.min()
  }

  /// The same state with other identifiers of the clients.
  package func renamed<Other>(_ name: (Client) -> Other) -> SharedCapacity<Other> {
    var renamed = SharedCapacity<Other>()
    for (client, share) in shares { renamed.acquireUnchecked(share, for: name(client)) }
    for (client, moment) in demands { renamed.recordDemand(of: name(client), at: moment) }
    return renamed
  }

  private func isNeeded(besides client: Client, at moment: Timestamp) -> Bool {
    held > share(of: client)
      || demands.contains { $0.client != client && moment - $0.at < Self.demandLifetime }
  }
}
