internal import Jobs
internal import Synchronization

/// What all requests together may hold of something, and what each client holds of it.
final class Budget: Sendable {
  let capacity: Int
  /// The most that one client holds, even while no other client asks.
  private let ofClient: Int
  private let shares = Mutex(SharedCapacity<RateLimiter.Client>())
  private let now: WallClock

  init(_ capacity: Int, ofClient: Int = .max, now: @escaping WallClock) {
    (self.capacity, self.ofClient) = (capacity, ofClient)
    self.now = now
  }

  /// What is held in all.
  var held: Int { shares.withLock { $0.held } }

  /// A client's part, nothing yet.
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
  /// A part of it: given back when it is let go of, however its request ends.
  final class Share: Sendable {
    private let budget: Budget
    private let client: RateLimiter.Client
    private let taken = Mutex(0)

    fileprivate init(of budget: Budget, for client: RateLimiter.Client) {
      (self.budget, self.client) = (budget, client)
    }

    deinit { release() }

    /// Whether so much more could be taken now. Where not, the client counts as one that asks.
    func hasRoom(for amount: Int) -> Bool { budget.hasRoom(for: amount, of: client) }

    /// Takes so much more.
    /// - Returns: whether there was room for it.
    func take(_ amount: Int) -> Bool {
      guard budget.take(amount, for: client) else { return false }
      taken.withLock { $0 += amount }
      return true
    }

    /// Holds so much in place of what it has, room or not: for what is there already.
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

    /// Gives all of it back.
    func release() { hold(0) }
  }
}
