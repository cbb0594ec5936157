internal import Foundation
internal import GRDB
internal import Jobs
internal import Records

/// The stored form of a job: JSON as `Codable` encodes it, without the members that equal the
/// defaults of its batch.
enum JobRecord {
  static func data(of job: Job) throws -> Data {
    Data(try RecordEncoder.encode(job, userInfo: userInfo(job.submission.defaults)))
  }

  /// - Parameter defaults: the defaults with which the job was encoded.
  static func job(from data: Data, over defaults: SharedDefaults? = nil) throws -> Job {
    try RecordDecoder.decode(Job.self, from: Array(data), userInfo: userInfo(defaults))
  }

  private static func userInfo(_ defaults: SharedDefaults?) -> [CodingUserInfoKey: Any] {
    defaults.map { [.defaults: $0] } ?? [:]
  }

  /// Encodes tags for their column; `nil` if they equal the tags of the defaults, or there are
  /// none.
  static func data(ofTags tags: [String], over defaults: SharedDefaults?) throws -> Data? {
    tags == defaults?.tags ?? [] ? nil : Data(try RecordEncoder.encode(tags))
  }

  static func tags(from data: Data?, over defaults: SharedDefaults?) throws -> Set<Data> {
    let tags = try data.map { try RecordDecoder.decode([String].self, from: Array($0)) }
    return Set((tags ?? defaults?.tags ?? []).map { Data($0.utf8) })
  }
}

/// Defaults of batches. Jobs refer to them by digest.
extension SharedDefaults {
  func stored() throws -> Stored { try stored { try RecordEncoder.encode($0) } }

  /// Reads a batch's defaults by their digest, from memory or from the database.
  static func fetch(_ digest: Data, of batch: Int64, _ db: Database) throws -> SharedDefaults {
    guard let name = ImageDigest(bytes: digest) else {
      throw StoreError.unreadable(detail: "the name of a line's defaults is not a digest")
    }
    if let known = KnownDefaults.find(name) { return known }
    let statement = try db.cachedStatement(
      sql: "SELECT record FROM batch_defaults WHERE batch = ? AND digest = ?")
    guard let record = try Data.fetchOne(statement, arguments: [batch, digest]) else {
      throw StoreError.unreadable(detail: "the defaults of the batch of row \(batch) are missing")
    }
    let defaults = try SharedDefaults(Array(record), digest: name) {
      try RecordDecoder.decode(DefaultsRecord.self, from: $0)
    }
    KnownDefaults.remember(defaults, name)
    return defaults
  }
}

/// The stored form of a cache entry: JSON as `Codable` encodes it.
enum CacheRecord {
  static func data(of entry: CacheEntry) throws -> Data { Data(try RecordEncoder.encode(entry)) }

  static func entry(from data: Data) throws -> CacheEntry {
    try RecordDecoder.decode(CacheEntry.self, from: Array(data))
  }
}
