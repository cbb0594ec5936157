internal import HTTP

/// How much of a JSON body is gathered before it is read.
struct Gathering: Sendable, Equatable {
  /// Bytes of one job's JSON, or of another object's.
  var single: Int
  /// Bytes of an array's.
  var batch: Int

  /// One job's JSON: the longest legal one has some 100 kB, six times that where each character is escaped.
  private static let maxSingle = 1 << 20
  /// What a job may have in a batch, on average.
  private static let perJob = 128 << 10

  /// The same for whatever comes.
  init(upTo limit: Int) { (single, batch) = (limit, limit) }

  /// What a submission may have.
  init(maxBody: Int, maxBatch: Int) {
    single = min(maxBody, Self.maxSingle)
    let (jobs, overflow) = maxBatch.multipliedReportingOverflow(by: Self.perJob)
    batch = min(maxBody, max(Self.maxSingle, overflow ? .max : jobs))
  }

  /// Bytes that all requests together may have gathered: while others ask, each client still has room for the longest
  /// batch.
  var budget: Int { max(64 << 20, 2 * batch) }

  /// What content may have whose first byte but white space is that; until it says what it is, as much as an object.
  private func limit(after first: UInt8?) -> Int { first == UInt8(ascii: "[") ? batch : single }

  private static func isSpace(_ byte: UInt8) -> Bool {
    byte == 0x20 || byte == 0x09 || byte == 0x0A || byte == 0x0D
  }

  /// The whole content, without a byte order mark.
  ///
  /// - Parameter share: takes the memory that it is gathered in.
  func content(of body: RequestBody, in share: Budget.Share) async throws(Problem) -> [UInt8] {
    let declared = body.declaredLength
    if let declared {
      guard declared <= batch else { throw Problem(.tooLarge(limit: batch)) }
      // Said before any of it is received.
      guard share.hasRoom(for: declared) else { throw Self.noRoom }
    }
    var content: [UInt8] = []
    var room = 0
    // Remembered, so that no byte is looked at again for each piece that comes.
    var first: UInt8?
    var mark = ByteOrderMark()
    while let received = try await Self.next(of: body) {
      let piece = mark.removed(from: received)
      let count = content.count + piece.count
      if count > room {
        // Doubled, so that bytes are seldom moved, but never beyond what may come.
        let wanted = max(count, min(2 * room, declared ?? batch))
        guard share.take(wanted - room) else { throw Self.noRoom }
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

  private static var noRoom: Problem {
    .noRoom("As much is being received as fits into memory; try again later.")
  }
}
