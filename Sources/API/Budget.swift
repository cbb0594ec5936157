internal import Jobs
internal import Synchronization

/// Limits an amount (bytes, streams, connections) for all requests together and for each client.
final class Budget: Sendable {
  let capacity: Int
  /// The limit of one client, even if no other client uses any.
  private let ofClient: Int
  private let shares = Mutex(SharedCapacity<RateLimiter.Client>())
  private let now: WallClock

  init(_ capacity: Int, ofClient: Int = .max, now: @escaping WallClock) {
    (self.capacity, self.ofClient) = (capacity, ofClient)
    self.now = now
  }

  /// The amount that all clients have reserved.
  var held: Int { shares.withLock { $0.held } }

  /// An empty reservation of the client.
  func share(for client: RateLimiter.Client) -> Share { Share(of: self, for: client) }

  fileprivate func hasRoom(for amount: Int, of client: RateLimiter.Client) -> Bool {
    shares.withLock { $0.hasRoom(for: amount, of: client, within: limits, at: now()) }
  }

  fileprivate func take(_ amount: Int, for client: RateLimiter.Client) -> Bool {
    shares.withLock { shares in
      guard shares.hasRoom(for: amount, of: client, within: limits, at: now()) else { return false }
      shares.hold(amount, for: client)
      return true
    }
  }

  private var limits: QueueCapacity { QueueCapacity(capacity, ofOwner: ofClient) }

  fileprivate func hold(_ amount: Int, for client: RateLimiter.Client) {
    shares.withLock { $0.hold(amount, for: client) }
  }

  fileprivate func release(_ amount: Int, of client: RateLimiter.Client) {
    shares.withLock { $0.release(amount, of: client) }
  }
}

extension Budget {
  /// A reservation. It is released when the object is deallocated, however its request ends.
  final class Share: Sendable {
    private let budget: Budget
    private let client: RateLimiter.Client
    private let taken = Mutex(0)

    fileprivate init(of budget: Budget, for client: RateLimiter.Client) {
      (self.budget, self.client) = (budget, client)
    }

    deinit { release() }

    /// Whether `amount` more could be reserved now. If not, the client counts as waiting.
    func hasRoom(for amount: Int) -> Bool { budget.hasRoom(for: amount, of: client) }

    /// Reserves `amount` more.
    /// - Returns: whether it was available.
    func take(_ amount: Int) -> Bool {
      guard budget.take(amount, for: client) else { return false }
      taken.withLock { $0 += amount }
      return true
    }

    /// Sets the reservation to `amount` without checking the limits, for bytes that are in memory already.
    func hold(_ amount: Int) {
      let before = taken.withLock { taken in
        defer { taken = amount }
        return taken
      }
      if amount > before {
        budget.hold(amount - before, for: client)
      } else if amount < before {
        budget.release(before - amount, of: client)
      }
    }

    /// Releases everything.
    func release() { hold(0) }
  }
}
