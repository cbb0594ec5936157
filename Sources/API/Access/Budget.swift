internal import HTTP
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

/// The limits for a JSON body that is read completely before it is parsed.
struct BodyLimits: Sendable, Equatable {
  /// Maximum bytes of one job, or of another JSON object.
  var single: Int
  /// Maximum bytes of an array of jobs.
  var batch: Int

  /// The longest legal job has about 100 kB, or six times that if every character is escaped.
  private static let maxSingle = 1 << 20
  /// The average maximum of a job in an array, in bytes.
  private static let perJob = 128 << 10

  /// The same limit for objects and arrays.
  init(upTo limit: Int) { (single, batch) = (limit, limit) }

  /// The limits of a submission.
  init(maxBody: Int, maxBatch: Int) {
    single = min(maxBody, Self.maxSingle)
    let (jobs, overflow) = maxBatch.multipliedReportingOverflow(by: Self.perJob)
    batch = min(maxBody, max(Self.maxSingle, overflow ? .max : jobs))
  }

  /// The maximum bytes that all requests together may have read, so that each of two clients can send the longest array
  /// at the same time.
  var budget: Int { max(64 << 20, 2 * batch) }

  /// The limit for content by its first byte that is not white space. Without one, the limit of an object.
  private func limit(after first: UInt8?) -> Int { first == UInt8(ascii: "[") ? batch : single }

  private static func isSpace(_ byte: UInt8) -> Bool {
    byte == 0x20 || byte == 0x09 || byte == 0x0A || byte == 0x0D
  }

  /// Reads the whole content, without a byte order mark.
  /// - Parameter share: the reservation for the memory of the content.
  func read(_ body: RequestBody, in share: Budget.Allocation) async throws(Problem) -> [UInt8] {
    let declared = body.declaredLength
    if let declared {
      guard declared <= batch else { throw Problem(.tooLarge(limit: batch)) }
      // Refused before any of it is received.
      guard share.isAvailable(declared) else { throw Self.overloaded }
    }
    var content: [UInt8] = []
    var room = 0
    // Kept, so that each piece is not searched again from the start.
    var first: UInt8?
    var mark = ByteOrderMark()
    while let received = try await Self.next(of: body) {
      let piece = mark.removed(from: received)
      let count = content.count + piece.count
      if count > room {
        // Doubled, so that bytes are seldom moved, but never beyond the longest content possible.
        let wanted = max(count, min(2 * room, declared ?? batch))
        guard share.reserve(wanted - room) else { throw Self.overloaded }
        room = wanted
        if content.isEmpty { content = piece }
        content.reserveCapacity(room)
      }
      if content.count < count { content += piece }
      first = first ?? piece.first { !Self.isSpace($0) }
      let limit = limit(after: first)
      guard content.count <= limit else { throw Problem(.tooLarge(limit: limit)) }
    }
    return content + mark.rest()
  }

  private static func next(of body: RequestBody) async throws(Problem) -> [UInt8]? {
    do { return try await body.next() } catch { throw Problem(error) }
  }

  private static var overloaded: Problem {
    .overloaded("Too many request bodies are being received. Retry after the time in Retry-After.")
  }
}
