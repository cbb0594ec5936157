/// A store whose contents can be copied to another store. The functions add what the other protocols do not
/// return. No instance uses the store during the copy.
package protocol ExportedStore: JobRecords, InstanceLeases, EmbeddedImages {
  /// Returns the IDs of all queued jobs in queue order, including jobs that wait for their time.
  func queueOrder() async throws(StoreError) -> [JobID]

  /// Returns up to `count` idempotency keys after position `number`.
  func keys(after number: Int64, count: Int) async throws(StoreError) -> [Exported<ExportedKey>]

  /// Returns up to `count` cache entries (responses and variants) after position `number`.
  func entries(after number: Int64, count: Int) async throws(StoreError)
    -> [Exported<ExportedEntry>]

  /// Returns up to `count` batches after position `number`.
  func batches(after number: Int64, count: Int) async throws(StoreError) -> [Exported<Batch>]

  /// Returns up to `count` rejected lines after line `line`, of the batch at position `number`, in line
  /// order.
  func rejectedLines(of number: Int64, after line: Int64, count: Int) async throws(StoreError)
    -> [Exported<RejectedLine>]

  /// Returns up to `count` webhook messages, sent or not, after position `number`.
  func messages(after number: Int64, count: Int) async throws(StoreError)
    -> [Exported<WebhookMessage>]
}

/// A value in an exported store, with its position among all values of its kind.
package struct Exported<Value: Sendable>: Sendable {
  /// The position.
  package let number: Int64
  /// Nil if the value cannot be decoded.
  package let value: Value?

  /// The value that `read` returns, or nil if it throws.
  package init(_ number: Int64, _ read: () throws -> Value) {
    self.number = number
    value = try? read()
  }
}

/// A store that receives the contents of another store. Values that it already has stay unchanged, so an
/// interrupted copy can be started again.
package protocol ImportingStore: ImageReferences, InstanceLeases, EmbeddedImages {
  /// Returns the images to which no job and no cache entry refers. Their bytes need not exist, even if they
  /// are reserved.
  func unreferenced(_ images: [ImageDigest]) async throws(StoreError) -> Set<ImageDigest>

  /// Imports batches unchanged. Their counts include jobs that are imported later.
  /// - Returns: The number of batches that were new.
  func importBatches(_ batches: [Batch]) async throws(StoreError) -> Int

  /// Imports rejected lines. Does nothing if the batch does not exist.
  func importRejectedLines(_ lines: [RejectedLine], of batch: BatchID) async throws(StoreError)

  /// Imports jobs unchanged. None of them is loading. Queued jobs go behind all others, in the given order.
  /// Ends the reservations under their IDs. Does not change batch counts, because the imported batches
  /// already include these jobs.
  ///
  /// - Returns: The number of jobs that were new.
  /// - Throws: `.leaseLost` if the instance's lease has ended.
  func importJobs(_ jobs: [Job], _ images: ImportedImages, for instance: Instance)
    async throws(StoreError) -> Int

  /// Imports cache entries, except those of lost images. Does not end reservations.
  ///
  /// - Returns: The number of entries that were new.
  /// - Throws: `.leaseLost` if the instance's lease has ended.
  func importEntries(_ entries: [ExportedEntry], _ images: ImportedImages, for instance: Instance)
    async throws(StoreError) -> Int

  /// Imports idempotency keys.
  /// - Returns: The number of keys that were new.
  func importKeys(_ keys: [ExportedKey]) async throws(StoreError) -> Int

  /// Imports webhook messages.
  /// - Returns: The number of messages that were new.
  func importMessages(_ messages: [WebhookMessage]) async throws(StoreError) -> Int
}

/// The images of imported jobs or cache entries that need special treatment. All other images are either
/// known to the store, or reserved with their bytes stored.
package struct ImportedImages: Sendable {
  /// Images that the job store saves itself.
  package var embedded: [EmbeddedImage] = []
  /// Images whose bytes were not found.
  package var lost: Set<ImageDigest> = []

  package init() {}
}

/// An idempotency key, as stored.
package struct ExportedKey: Sendable {
  /// The key and the digest of its request.
  package var key: IdempotencyKey
  /// When the key was first used.
  package var since: Timestamp
  /// The jobs that the request created, in the order of the request.
  package var jobs: [JobID]

  package init(key: IdempotencyKey, since: Timestamp, jobs: [JobID]) {
    self.key = key
    self.since = since
    self.jobs = jobs
  }
}

/// A cache entry, as stored: a response or a variant.
package struct ExportedEntry: Sendable {
  /// The entry's ID.
  package var id: CacheEntry.ID
  /// ``CacheEntry/resource``; nil if it equals the key.
  package var resource: Fingerprint?
  /// The digest of the entry's bytes.
  package var image: ImageDigest
  /// The number of bytes.
  package var bytes: Int
  /// When the entry was stored, and when it was last used.
  package var moments: (stored: Timestamp, used: Timestamp)
  /// The encoded response, in the format of all stores; or the name of a variant.
  package var record: [UInt8]

  package init(
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

/// The schema versions of a store. Each schema change increases the version by one.
package struct TableVersions: Sendable, Equatable {
  /// The version of the store; 0 if it has no tables.
  package var found: Int
  /// The latest version that this release knows.
  package var latest: Int

  package init(found: Int, latest: Int) {
    self.found = found
    self.latest = latest
  }
}
