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
    /// The sums of the three counters above over all owners.
    case allPlaces, allLines, allStored
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
      case .allPlaces: Array("all places".utf8)
      case .allLines: Array("all lines".utf8)
      case .allStored: Array("all stored".utf8)
      case .images: Array("images".utf8)
      case .imageBytes: Array("image bytes".utf8)
      case .imageBytesOf(let owner): Self.imageBytesPrefix + owner
      case .entries: Array("entries".utf8)
      case .entryBytes: Array("entry bytes".utf8)
      case .recordBytes: Array("record bytes".utf8)
      }
    }

    /// The counter that sums up this one over all owners; nil for a counter without an owner.
    var sum: Name? {
      switch self {
      case .places: .allPlaces
      case .lines: .allLines
      case .stored: .allStored
      default: nil
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

  /// Also changes the counter's sum over all owners.
  subscript(name: Name) -> Int {
    get { changes[name] ?? 0 }
    set {
      if let sum = name.sum { self[sum] += newValue - self[name] }
      changes[name] = newValue == 0 ? nil : newValue
    }
  }
}

/// The counters as a transaction sees them, including its own changes.
struct Totals {
  private let sums: [Counters.Name: Int]
  private let owners: Set<[UInt8]>
  private let transaction: Transaction

  subscript(name: Counters.Name) -> Int { sums[name, default: 0] + transaction.tallies[name] }

  /// The size that the cache's limit applies to. Records count too; otherwise a million entries of
  /// one image would cost nothing. The first MiB of records is free, so that a small limit still
  /// means image bytes.
  var cacheSize: Int { self[.entryBytes] + max(0, self[.recordBytes] - 1 << 20) }

  /// Stands for the owners whose counters were not read. It is not UTF-8, so no owner has this name.
  static let others: [UInt8] = [0xFF]

  /// The queue slots of the owners' single jobs, and of those of ``others``.
  var places: [[UInt8]: Int] { byOwner(of: .allPlaces, Counters.Name.places) }

  /// The queue slots of the owners' batch jobs, and of those of ``others``.
  var lines: [[UInt8]: Int] { byOwner(of: .allLines, Counters.Name.lines) }

  /// The bytes of the owners' records, and of those of ``others``.
  var stored: [[UInt8]: Int] { byOwner(of: .allStored, Counters.Name.stored) }

  private func byOwner(
    of sum: Counters.Name, _ name: ([UInt8]) -> Counters.Name
  ) -> [[UInt8]: Int] {
    // A counter that a fault made negative must not stop its owner's submissions.
    var held = Dictionary(uniqueKeysWithValues: owners.map { ($0, max(0, self[name($0)])) })
    held[Self.others] = max(0, self[sum] - held.values.reduce(0, +))
    return held
  }

  fileprivate init(
    _ sums: [Counters.Name: Int], _ owners: Set<[UInt8]>, _ transaction: Transaction
  ) {
    (self.sums, self.owners) = (sums, owners)
    self.transaction = transaction
  }
}

extension Transaction {
  /// Reads the counters of images and of the cache, and those of jobs in these phases. Uncommitted transactions are not
  /// included.
  func totals(phases: [Phase] = []) throws -> Totals {
    try totals(
      [.images, .imageBytes, .entries, .entryBytes, .recordBytes] + phases.map { .phase($0) })
  }

  /// Reads the counters of these owners and their sums over all owners. The number of other owners does not matter.
  func totals(of owners: Set<[UInt8]>) throws -> Totals {
    try totals(
      [.allPlaces, .allLines, .allStored]
        + owners.flatMap { [.places($0), .lines($0), .stored($0)] }, of: owners)
  }

  private func totals(
    _ names: [Counters.Name], of owners: Set<[UInt8]> = []
  ) throws -> Totals {
    var sums = knownSums ?? [:]
    let unknown = names.filter { sums[$0] == nil }
    if !unknown.isEmpty {
      let rows = try execute(
        "SELECT name, sum(n)::bigint FROM tallies WHERE name = ANY ($1) GROUP BY name",
        [.byteStrings(unknown.map(\.bytes))])
      var found: [[UInt8]: Int] = [:]
      for row in rows.all { found[rows.bytes(row, 0) ?? []] = Int(rows.int(row, 1) ?? 0) }
      for name in unknown { sums[name] = found[name.bytes] ?? 0 }
      if knownSums != nil { knownSums = sums }
    }
    return Totals(sums, owners, self)
  }

  /// Returns the known counters as of after this transaction, for the next one.
  func takeSums() -> [Counters.Name: Int]? {
    guard var sums = exchange(&knownSums, with: nil) else { return nil }
    if sums.count > Self.maxKnownSums { return [:] }
    for (name, change) in tallies.changes { sums[name]? += change }
    return sums
  }

  /// Enough for some 1,300 owners, which have three counters each.
  private static let maxKnownSums = 4_096

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
