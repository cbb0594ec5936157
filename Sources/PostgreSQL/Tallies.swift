internal import Jobs

/// Counts that the database keeps, as looking them up would take long: of jobs by phase, of the queue's places by owner, of
/// images and the cache's entries.
///
/// Each is a sum over some rows, so that transactions which change it at the same time seldom wait for each other.
struct Tallies {
  /// What is counted.
  enum Name: Hashable {
    case phase(Phase)
    /// Of the queue, by owner.
    case places([UInt8])
    /// Of what jobs of batches have beside it, by owner.
    case lines([UInt8])
    /// Bytes of the records of jobs, of rejected lines and of batches' defaults, by owner.
    case stored([UInt8])
    /// Images that are not leaving, and their bytes.
    case images, imageBytes
    /// The same bytes by ``Transaction/Image/owner``, of images that are one owner's.
    case imageBytesOf([UInt8])
    /// Entries of the cache, their images' bytes, equal images counted once, and their records' bytes.
    case entries, entryBytes, recordBytes

    /// The name of its rows. Owners' are any bytes: they come last.
    var bytes: [UInt8] {
      switch self {
      case .phase(let phase): Array("phase \(phase.rawValue)".utf8)
      case .places(let owner): Self.placesPrefix + owner
      case .lines(let owner): Self.linesPrefix + owner
      case .stored(let owner): Self.storedPrefix + owner
      case .images: Array("images".utf8)
      case .imageBytes: Array("image bytes".utf8)
      case .imageBytesOf(let owner): Self.imageBytesPrefix + owner
      case .entries: Array("entries".utf8)
      case .entryBytes: Array("entry bytes".utf8)
      case .recordBytes: Array("record bytes".utf8)
      }
    }

    static let placesPrefix = Array("places ".utf8)
    static let linesPrefix = Array("lines ".utf8)
    static let storedPrefix = Array("stored ".utf8)
    static let imageBytesPrefix = Array("image bytes of ".utf8)
  }

  private(set) var changes: [Name: Int] = [:]
  /// So many rows a count has at the most.
  static let slots: Int64 = 16

  subscript(name: Name) -> Int {
    get { changes[name] ?? 0 }
    set { changes[name] = newValue == 0 ? nil : newValue }
  }
}

/// The counts as a transaction sees them, its own changes included.
struct Totals {
  private let sums: [[UInt8]: Int]
  private let transaction: Transaction

  subscript(name: Tallies.Name) -> Int { sums[name.bytes, default: 0] + transaction.tallies[name] }

  /// What the cache's limit is of. Records count too, or a million entries of one image would cost nothing; not the
  /// first MiB of them, so that a small limit is one of images.
  var cacheSize: Int { self[.entryBytes] + max(0, self[.recordBytes] - 1 << 20) }

  /// Whose jobs have how many places of the queue, before the transaction.
  var places: [[UInt8]: Int] { byOwner(Tallies.Name.placesPrefix) }

  /// The same of jobs of batches.
  var lines: [[UInt8]: Int] { byOwner(Tallies.Name.linesPrefix) }

  /// The bytes of each owner's records, before the transaction.
  var stored: [[UInt8]: Int] { byOwner(Tallies.Name.storedPrefix) }

  private func byOwner(_ prefix: [UInt8]) -> [[UInt8]: Int] {
    let ofOwners = sums.filter { $0.key.starts(with: prefix) }
    return Dictionary(
      uniqueKeysWithValues: ofOwners.map { (Array($0.key.dropFirst(prefix.count)), $0.value) })
  }

  fileprivate init(_ rows: Rows, _ transaction: Transaction) {
    var sums: [[UInt8]: Int] = [:]
    for row in rows.all {
      if let name = rows.bytes(row, 0) { sums[name] = Int(rows.int(row, 1) ?? 0) }
    }
    self.sums = sums
    self.transaction = transaction
  }
}

extension Transaction {
  /// What is counted, as of now. Others' transactions that have not ended are not in it.
  func totals() throws -> Totals {
    Totals(try execute("SELECT name, sum(n)::bigint FROM tallies GROUP BY name"), self)
  }

  /// The same of what images and the cache take alone, however many owners there are.
  func totalsOfImages() throws -> Totals {
    let names: [Tallies.Name] = [.images, .imageBytes, .entries, .entryBytes, .recordBytes]
    return Totals(
      try execute(
        "SELECT name, sum(n)::bigint FROM tallies WHERE name = ANY ($1) GROUP BY name",
        [.byteStrings(names.map(\.bytes))]), self)
  }

  /// The owner with more than half of so many bytes of images, where others have images, too.
  func ownerOverShare(of limit: Int, _ totals: Totals) throws -> [UInt8]? {
    let prefix = Tallies.Name.imageBytesPrefix
    // The prefix ends with a space: with the next byte in its place the range ends.
    let rows = try execute(
      """
      SELECT name, sum(n)::bigint FROM tallies WHERE name >= $1 AND name < $2
      GROUP BY name ORDER BY 2 DESC LIMIT 1
      """, [.bytes(prefix), .bytes(prefix.dropLast() + [0x21])])
    guard let name = rows.bytes(0, 0) else { return nil }
    let owner = Array(name.dropFirst(prefix.count))
    let bytes = Int(rows.int(0, 1) ?? 0) + tallies[.imageBytesOf(owner)]
    return bytes > limit - limit / 2 && bytes < totals[.imageBytes] ? owner : nil
  }

  /// Counts an image's bytes, and whose they are.
  func countImageBytes(_ bytes: Int, of owner: [UInt8]?) {
    tallies[.imageBytes] += bytes
    countImageBytesOfOwner(bytes, owner)
  }

  func countImageBytesOfOwner(_ bytes: Int, _ owner: [UInt8]?) {
    if let owner, !owner.isEmpty { tallies[.imageBytesOf(owner)] += bytes }
  }

  /// Writes how the counts change; the last thing that a transaction does, as others may wait for its rows.
  func writeTallies() throws {
    guard !tallies.changes.isEmpty else { return }
    let changes = tallies.changes.map { (name: $0.key.bytes, n: $0.value) }
      .sorted { $0.name.lexicographicallyPrecedes($1.name) }
    try add(
      """
      INSERT INTO tallies AS t (name, slot, n)
      SELECT name, pg_backend_pid() % \(Tallies.slots), n FROM unnest($1, $2) AS x (name, n)
      ON CONFLICT (name, slot) DO UPDATE SET n = t.n + excluded.n
      """,
      [.byteStrings(changes.map(\.name)), .ints(changes.map { Int64($0.n) })])
  }
}
