/// A store whose contents another one may take over: beside what its other protocols tell, what has to be known for that.
/// Nobody works with it meanwhile.
public protocol ExportedStore: JobRecords, InstanceLeases, EmbeddedImages {
  /// The jobs of the queue in its order, whatever they wait for.
  func queueOrder() async throws(StoreError) -> [JobID]

  /// Up to `count` idempotency keys after the one of that number.
  func keys(after number: Int64, count: Int) async throws(StoreError) -> [Exported<ExportedKey>]

  /// Up to `count` entries of the cache, responses and variants alike, after the one of that number.
  func entries(after number: Int64, count: Int) async throws(StoreError)
    -> [Exported<ExportedEntry>]

  /// Up to `count` batches after the one of that number.
  func batches(after number: Int64, count: Int) async throws(StoreError) -> [Exported<Batch>]

  /// Up to `count` lines after that one of which no job could be made, of the batch of that number, in their order.
  func rejectedLines(of number: Int64, after line: Int64, count: Int) async throws(StoreError)
    -> [Exported<RejectedLine>]

  /// Up to `count` messages, sent or not, after the one of that number.
  func messages(after number: Int64, count: Int) async throws(StoreError)
    -> [Exported<WebhookMessage>]
}

/// What a store has at one place among all of a kind.
public struct Exported<Value: Sendable>: Sendable {
  /// The place.
  public let number: Int64
  /// Nil where it can't be read.
  public let value: Value?

  /// At a place, what can be read there.
  public init(_ number: Int64, _ read: () throws -> Value) {
    self.number = number
    value = try? read()
  }
}

/// A store that takes over what another one kept. What it has already it leaves as it is, so that a move which was cut short
/// is begun again.
public protocol ImportingStore: ImageReferences, InstanceLeases, EmbeddedImages {
  /// Those among the images that no job and no entry of the cache refers to: their bytes need not be there, even where they
  /// are reserved.
  func unreferenced(_ images: [ImageDigest]) async throws(StoreError) -> Set<ImageDigest>

  /// Takes batches over as they are, with what they count of jobs that are to come after them.
  /// - Returns: how many were not there.
  func take(_ batches: [Batch]) async throws(StoreError) -> Int

  /// Takes lines over of which no job could be made. Nothing is taken where there is no such batch.
  func take(_ lines: [RejectedLine], of batch: BatchID) async throws(StoreError)

  /// Takes jobs over as they are, none of them loading; queued ones get behind all others, in the order given. Ends what is
  /// reserved under their names. Batches that they are lines of count them already.
  ///
  /// - Returns: how many were not there.
  /// - Throws: `.leaseLost` where the instance's lease is over.
  func take(_ jobs: [Job], _ images: ImportedImages, for instance: Instance)
    async throws(StoreError) -> Int

  /// Takes entries of the cache over; those of lost images are left out. What is reserved for them is released later.
  ///
  /// - Returns: how many were not there.
  /// - Throws: `.leaseLost` where the instance's lease is over.
  func take(_ entries: [ExportedEntry], _ images: ImportedImages, for instance: Instance)
    async throws(StoreError) -> Int

  /// Takes keys over.
  /// - Returns: how many were not there.
  func take(_ keys: [ExportedKey]) async throws(StoreError) -> Int

  /// Takes messages over.
  /// - Returns: how many were not there.
  func take(_ messages: [WebhookMessage]) async throws(StoreError) -> Int
}

/// What is known of the images that imported jobs or entries refer to. All others are kept, or reserved and in their place.
public struct ImportedImages: Sendable {
  /// For the store to keep itself.
  public var embedded: [EmbeddedImage] = []
  /// Those whose bytes are nowhere.
  public var lost: Set<ImageDigest> = []

  /// None.
  public init() {}
}

/// A client's word that two requests are one, as it is kept.
public struct ExportedKey: Sendable {
  /// The key, with its request's digest.
  public var key: IdempotencyKey
  /// Since when it is known.
  public var since: Timestamp
  /// What it stands for, in the order given.
  public var jobs: [JobID]

  /// A key.
  public init(key: IdempotencyKey, since: Timestamp, jobs: [JobID]) {
    self.key = key
    self.since = since
    self.jobs = jobs
  }
}

/// An entry of the cache as it is kept: a response's or a variant's.
public struct ExportedEntry: Sendable {
  /// What tells it from the others.
  public var id: CacheEntry.ID
  /// ``CacheEntry/resource``, where it is another one than the key.
  public var resource: Fingerprint?
  /// The name of its bytes.
  public var image: ImageDigest
  /// How many there are.
  public var bytes: Int
  /// When it was stored, and last used.
  public var moments: (stored: Timestamp, used: Timestamp)
  /// A response as all stores write it, a variant's name.
  public var record: [UInt8]

  /// An entry.
  public init(
    id: CacheEntry.ID, resource: Fingerprint?, image: ImageDigest, bytes: Int,
    moments: (stored: Timestamp, used: Timestamp), record: [UInt8]
  ) {
    self.id = id
    self.resource = resource
    self.image = image
    self.bytes = bytes
    self.moments = moments
    self.record = record
  }
}

/// How far a store's tables are. Each change of them has a number, one more than the one before.
public struct TableVersions: Sendable, Equatable {
  /// The last change that was made; 0: there are no tables.
  public var found: Int
  /// The last one that this release knows.
  public var latest: Int

  /// How far they are.
  public init(found: Int, latest: Int) {
    self.found = found
    self.latest = latest
  }
}
