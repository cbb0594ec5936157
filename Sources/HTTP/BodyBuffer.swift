/// The content of one request on its way from libmicrohttpd's thread to the handler's task. A
/// value: the connection's lock guards it.
struct BodyBuffer {
  typealias Piece = Result<[UInt8]?, BodyError>
  typealias Waiter = UnsafeContinuation<Piece, Never>

  /// So many bytes wait for the handler before the client is held back. A piece comes on top, which
  /// is at most the connection's pool.
  static let capacity = 64 << 10
  /// Content up to this length is taken in whole before the handler runs.
  static let gathered = 16 << 10

  /// Told apart from the next request's on the same connection.
  let serial: UInt64
  /// Whether it comes for as long as it likes.
  let isStream: Bool
  private var limit: Int
  private var bytes: [UInt8] = []
  private var received = 0
  private var isWhole = false
  private var failure: BodyError?
  /// Bytes that were dropped since time was last given for them.
  private var unpaid = 0
  private var waiter: Waiter?

  /// - Parameter limit: nil: it comes for as long as it likes.
  init(serial: UInt64, limit: Int?) {
    self.serial = serial
    isStream = limit == nil
    self.limit = limit ?? .max
  }

  /// Whether more bytes should stay with the client for now.
  var isFull: Bool { bytes.count >= Self.capacity && failure == nil }

  /// How many bytes came beyond the limit and were dropped.
  var excess: Int { max(0, received - limit) }

  /// Whether the last piece gives the client of a stream more time: each one does while somebody reads, and afterwards each
  /// 64 KiB, as whoever is refused may still send for long, but not drip.
  var earnsTime: Bool { isStream && (failure == nil || unpaid == 0) }

  /// Takes in a piece, or drops it once the content has failed.
  mutating func append(_ piece: UnsafeRawBufferPointer) -> Wake? {
    received += piece.count
    if received > limit, !isStream { return fail(.tooLarge(limit: limit)) }
    guard failure == nil else {
      unpaid += piece.count
      if unpaid >= Self.capacity { unpaid = 0 }
      return nil
    }
    bytes.append(contentsOf: piece)
    return wake()
  }

  /// Notes that the last byte came.
  mutating func end() -> Wake? {
    isWhole = true
    return wake()
  }

  /// Notes that no more will come; what waits is dropped.
  mutating func fail(_ error: BodyError) -> Wake? {
    if failure == nil && !(isWhole && error == .disconnected) { failure = error }
    // What comes from here on is for nobody.
    if isStream { limit = received }
    bytes = []
    return wake()
  }

  /// What there is at once: bytes, the end or an error; nil if the taker must wait.
  mutating func take() -> Piece? {
    if let failure { return .failure(failure) }
    guard bytes.isEmpty else {
      defer { bytes = [] }
      return .success(bytes)
    }
    return isWhole ? .success(nil) : nil
  }

  /// Keeps the taker until there is something.
  mutating func wait(_ waiter: Waiter) { self.waiter = waiter }

  /// Lets the taker go empty-handed, because its task was cancelled.
  mutating func release() -> Wake? {
    guard let waiter else { return nil }
    self.waiter = nil
    return Wake(waiter: waiter, piece: .failure(.disconnected))
  }

  private mutating func wake() -> Wake? {
    guard let waiter, let piece = take() else { return nil }
    self.waiter = nil
    return Wake(waiter: waiter, piece: piece)
  }

  /// A taker and what it gets; to be run outside of the lock.
  struct Wake {
    let waiter: Waiter
    let piece: Piece

    func run() { waiter.resume(returning: piece) }
  }
}
