internal import Foundation
internal import Jobs
internal import Records

/// The form in which a job is kept: what `Codable` encodes, as JSON.
enum JobRecord {
  static func data(of job: Job) throws -> Data { Data(try RecordEncoder.encode(job)) }

  static func job(from data: Data) throws -> Job {
    try RecordDecoder.decode(Job.self, from: Array(data))
  }

  /// Tags as their column holds them; nil where there are none.
  static func data(ofTags tags: [String]) throws -> Data? {
    tags.isEmpty ? nil : Data(try RecordEncoder.encode(tags))
  }

  static func tags(from data: Data?) throws -> Set<Data> {
    guard let data else { return [] }
    return Set(try RecordDecoder.decode([String].self, from: Array(data)).map { Data($0.utf8) })
  }
}

/// The form in which an entry of the cache is kept, as a job is.
enum CacheRecord {
  static func data(of entry: CacheEntry) throws -> Data { Data(try RecordEncoder.encode(entry)) }

  static func entry(from data: Data) throws -> CacheEntry {
    try RecordDecoder.decode(CacheEntry.self, from: Array(data))
  }
}
