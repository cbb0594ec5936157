internal import Jobs
internal import Synchronization

/// Limits an amount (bytes, streams, connections) for all requests together and for each client.
final class Budget: Sendable {
  private let bounds: ShareBounds
  private let allocations = Mutex(FairShare<RateLimiter.Client>())
  private let now: WallClock

  /// - Parameter ofClient: the limit of one client, even if no other client uses any.
  init(_ capacity: Int, ofClient: Int = .max, now: @escaping WallClock) {
    bounds = ShareBounds(capacity, ofClient: ofClient)
    self.now = now
  }

  /// The amount that all clients have reserved.
  var reserved: Int { allocations.withLock { $0.held } }

  /// An empty reservation of the client.
  func allocation(for client: RateLimiter.Client) -> Allocation {
    Allocation(of: self, for: client)
  }

  fileprivate func isAvailable(_ amount: Int, for client: RateLimiter.Client) -> Bool {
    allocations.withLock { $0.hasCapacity(for: amount, of: client, within: bounds, at: now()) }
  }

  fileprivate func reserve(_ amount: Int, for client: RateLimiter.Client) -> Bool {
    allocations.withLock { $0.acquire(amount, for: client, within: bounds, at: now()) }
  }

  fileprivate func forceReserve(_ amount: Int, for client: RateLimiter.Client) {
    allocations.withLock { $0.acquireUnchecked(amount, for: client) }
  }

  fileprivate func release(_ amount: Int, of client: RateLimiter.Client) {
    allocations.withLock { $0.release(amount, of: client) }
  }
}

extension Budget {
  /// A reservation. It is released when the object is deallocated, however its request ends.
  final class Allocation: Sendable {
    private let budget: Budget
    private let client: RateLimiter.Client
    private let reserved = Mutex(0)

    fileprivate init(of budget: Budget, for client: RateLimiter.Client) {
      (self.budget, self.client) = (budget, client)
    }

    deinit { release() }

    /// Whether `amount` more could be reserved now. If not, the client counts as waiting.
    func isAvailable(_ amount: Int) -> Bool { budget.isAvailable(amount, for: client) }

    /// Reserves `amount` more.
    /// - Returns: whether it was available.
    func reserve(_ amount: Int) -> Bool {
      guard budget.reserve(amount, for: client) else { return false }
      reserved.withLock { $0 += amount }
      return true
    }

    /// Sets the reservation to `amount` without checking the limits, for bytes that are in memory already.
    func set(_ amount: Int) {
      let before = reserved.withLock { taken in
        defer { taken = amount }
        return taken
      }
      if amount > before {
        budget.forceReserve(amount - before, for: client)
      } else if amount < before {
        budget.release(before - amount, of: client)
      }
    }

    /// Releases everything.
    func release() { set(0) }
  }
}
