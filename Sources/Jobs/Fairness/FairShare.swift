// Fairness: who gets how much, and who is next. Pure values; the caller passes the time and synchronizes access.
//
// `TokenBucket` limits a rate, `FairShare` divides a capacity among clients, `FairQueue` decides which client is
// served next. Clients are mostly owners of jobs.

/// The bounds of a ``FairShare``.
package struct ShareBounds: Sendable, Equatable, ExpressibleByIntegerLiteral {
  /// The amount that all clients together may hold.
  package var all: Int
  /// The amount that one client may hold, even if no other client needs any.
  package var ofClient: Int
  /// The amount that is reserved for clients that hold nothing. The first amount of such a client may come
  /// from it.
  package var reserved: Int

  package init(_ all: Int, ofClient: Int = .max, reserved: Int = 0) {
    (self.all, self.ofClient, self.reserved) = (all, ofClient, reserved)
  }

  package init(integerLiteral all: Int) { self.init(all) }

  /// The amount that one client may hold while another client needs some.
  package var half: Int { all - all / 2 }

  /// A quarter is reserved for clients that hold nothing, so a single client gets three quarters. With fewer
  /// than four, nothing is reserved.
  package static func keepingQuarter(of all: Int, ofClient: Int = .max) -> ShareBounds {
    ShareBounds(all, ofClient: ofClient, reserved: all / 4)
  }
}

/// A capacity that is divided among clients. A client may use all of it while no other client needs some, and
/// half of it otherwise. ``ShareBounds`` can limit each client further, and reserve a part.
///
/// Another client counts as needing capacity if it holds a part, or if it was refused or passed to
/// ``recordDemand(of:at:)`` within the last minute. Thus a client that arrives late gets capacity as soon as the
/// client that holds all of it releases some.
///
/// A client that is limited by another one's need always holds something. So a caller that checks again after
/// each release leaves no client waiting forever.
package struct FairShare<Client: Hashable & Sendable>: Sendable {
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
  var clients: some Collection<Client> { shares.keys }

  /// Returns how much more a client may hold; negative if it holds too much.
  package func available(
    for client: Client, within bounds: ShareBounds, at moment: Timestamp
  ) -> Int {
    let share = share(of: client)
    let ofClient = isNeeded(besides: client, at: moment) ? bounds.half : bounds.all
    return min(
      bounds.all - held - (share > 0 ? bounds.reserved : 0), min(ofClient, bounds.ofClient) - share)
  }

  /// Whether the client may hold `amount` more. If not, records that the client needs capacity, unless it
  /// reached its own limit.
  package mutating func hasCapacity(
    for amount: Int, of client: Client, within bounds: ShareBounds, at moment: Timestamp
  ) -> Bool {
    if amount <= available(for: client, within: bounds, at: moment) { return true }
    if amount <= bounds.ofClient - share(of: client) { recordDemand(of: client, at: moment) }
    return false
  }

  /// Adds `amount` to what the client holds; returns false if there is not enough capacity.
  package mutating func acquire(
    _ amount: Int, for client: Client, within bounds: ShareBounds, at moment: Timestamp
  ) -> Bool {
    guard hasCapacity(for: amount, of: client, within: bounds, at: moment) else { return false }
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

  /// Releases `amount` of the client, and records that the client needed it until now.
  package mutating func release(_ amount: Int, of client: Client, at moment: Timestamp) {
    release(amount, of: client)
    recordDemand(of: client, at: moment)
  }

  /// Records that the client needs capacity, or that it held some until now.
  package mutating func recordDemand(of client: Client, at moment: Timestamp) {
    if demands.last?.client == client { demands.removeLast() }
    demands.append((client, moment))
    if demands.count > 2 { demands.removeFirst() }
  }

  /// Returns when a client may hold more without a release, because another client's need expires; nil if
  /// there is no such time.
  package func nextChange(at moment: Timestamp) -> Timestamp? {
    demands.map { $0.at + Self.demandLifetime }.filter { $0 > moment }.min()
  }

  private func isNeeded(besides client: Client, at moment: Timestamp) -> Bool {
    held > share(of: client)
      || demands.contains { $0.client != client && moment - $0.at < Self.demandLifetime }
  }
}
