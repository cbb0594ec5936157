internal import Jobs

/// Counters that the database maintains, because counting the rows would take long: jobs by phase,
/// queue slots by owner, images and cache entries.
///
/// Each counter is the sum of several rows, so that concurrent transactions rarely wait for each
/// other.
struct Counters {
  /// The name of a counter.
  enum Name: Hashable {
    case phase(Phase)
    /// Queue slots of single jobs, by owner.
    case places([UInt8])
    /// Queue slots of batch jobs, by owner.
    case lines([UInt8])
    /// The bytes of the records of jobs, of rejected lines and of batches' defaults, by owner.
    case stored([UInt8])
    /// Images that are not pending deletion, and their bytes.
    case images, imageBytes
    /// The bytes of images that belong to one owner, by ``Transaction/Image/owner``.
    case imageBytesOf([UInt8])
    /// Cache entries, the bytes of their images (equal images count once), and the bytes of their
    /// records.
    case entries, entryBytes, recordBytes

    /// The name in the table. An owner can be any bytes, so it comes last.
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
  /// The maximum number of rows of one counter.
  static let slots = 16

  subscript(name: Name) -> Int {
    get { changes[name] ?? 0 }
    set { changes[name] = newValue == 0 ? nil : newValue }
  }
}

/// The counters as a transaction sees them, including its own changes.
struct Totals {
  private let sums: [[UInt8]: Int]
  private let transaction: Transaction

  subscript(name: Counters.Name) -> Int { sums[name.bytes, default: 0] + transaction.tallies[name] }

  /// The size that the cache's limit applies to. Records count too; otherwise a million entries of
  /// one image would cost nothing. The first MiB of records is free, so that a small limit still
  /// means image bytes.
  var cacheSize: Int { self[.entryBytes] + max(0, self[.recordBytes] - 1 << 20) }

  /// The queue slots of each owner's single jobs.
  var places: [[UInt8]: Int] { byOwner(Counters.Name.placesPrefix) }

  /// The queue slots of each owner's batch jobs.
  var lines: [[UInt8]: Int] { byOwner(Counters.Name.linesPrefix) }

  var stored: [[UInt8]: Int] { byOwner(Counters.Name.storedPrefix) }

  private func byOwner(_ prefix: [UInt8]) -> [[UInt8]: Int] {
    var owners: [[UInt8]: Int] = [:]
    func add(_ name: [UInt8], _ count: Int) {
      guard name.starts(with: prefix) else { return }
      owners[Array(name.dropFirst(prefix.count)), default: 0] += count
    }
    for (name, sum) in sums { add(name, sum) }
    for (name, change) in transaction.tallies.changes { add(name.bytes, change) }
    // A counter that a fault made negative must not stop its owner's submissions.
    return owners.mapValues { max(0, $0) }
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
  /// Reads all counters. Uncommitted transactions are not included.
  func totals() throws -> Totals {
    Totals(try execute("SELECT name, sum(n)::bigint FROM tallies GROUP BY name"), self)
  }

  /// Reads only the counters of images and the cache, so that the number of owners does not matter.
  func totalsOfImages() throws -> Totals {
    let names: [Counters.Name] = [.images, .imageBytes, .entries, .entryBytes, .recordBytes]
    return Totals(
      try execute(
        "SELECT name, sum(n)::bigint FROM tallies WHERE name = ANY ($1) GROUP BY name",
        [.byteStrings(names.map(\.bytes))]), self)
  }

  /// Returns the owner that uses more than half of `limit`, if other owners have images too.
  func ownerOverShare(of limit: Int, _ totals: Totals) throws -> [UInt8]? {
    let prefix = Counters.Name.imageBytesPrefix
    // The prefix ends with a space (0x20), so replacing it with 0x21 gives the end of the range.
    let rows = try execute(
      """
      SELECT name, sum(n)::bigint FROM tallies WHERE name >= $1 AND name < $2
      GROUP BY name ORDER BY 2 DESC LIMIT 1
      """, [.bytes(prefix), .bytes(prefix.dropLast() + [0x21])])
    guard let name = rows.bytes(0, 0) else { return nil }
    let owner = Array(name.dropFirst(prefix.count))
    let bytes = Int(rows.int(0, 1) ?? 0) + tallies[.imageBytesOf(owner)]
    return bytes > ShareBounds(limit).half && bytes < totals[.imageBytes] ? owner : nil
  }

  /// Adds an image's bytes to the total and to its owner's counter.
  func countImageBytes(_ bytes: Int, of owner: [UInt8]?) {
    tallies[.imageBytes] += bytes
    countImageBytesOfOwner(bytes, owner)
  }

  func countImageBytesOfOwner(_ bytes: Int, _ owner: [UInt8]?) {
    if let owner, !owner.isEmpty { tallies[.imageBytesOf(owner)] += bytes }
  }

  /// Writes the changed counters. Must be the last write of a transaction, because other transactions
  /// wait for these rows.
  func writeCounters() throws {
    guard !tallies.changes.isEmpty else { return }
    let changes = tallies.changes.map { (name: $0.key.bytes, n: $0.value) }
      .sorted { $0.name.lexicographicallyPrecedes($1.name) }
    try add(
      """
      INSERT INTO tallies AS t (name, slot, n)
      SELECT name, \(slot), n FROM unnest($1, $2) AS x (name, n) WHERE true
      ON CONFLICT (name, slot) DO UPDATE SET n = t.n + excluded.n
      """,
      [.byteStrings(changes.map(\.name)), .ints(changes.map { Int64($0.n) })])
  }
}
