internal import Foundation
internal import Jobs

/// The form in which a job is kept: what `Codable` encodes, as JSON.
enum JobRecord {
  private static let encoder = JSONEncoder()
  private static let decoder = JSONDecoder()

  static func data(of job: Job) throws -> Data { try encoder.encode(job) }

  static func job(from data: Data) throws -> Job { try decoder.decode(Job.self, from: data) }

  /// Tags as their column holds them; nil where there are none.
  static func data(ofTags tags: [String]) throws -> Data? {
    tags.isEmpty ? nil : try encoder.encode(tags)
  }

  static func tags(from data: Data?) throws -> Set<Data> {
    guard let data else { return [] }
    return Set(try decoder.decode([String].self, from: data).map { Data($0.utf8) })
  }
}
