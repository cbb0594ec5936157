/// A job in the service's responses.
struct ShownJob: Decodable, Sendable {
  struct Source: Decodable, Sendable {
    var url: String?
    var local: String?
  }

  struct Progress: Decodable, Sendable {
    var completed: Int
    var total: Int?
    var fraction: Double?
    var resumedFrom: Int
    var previews: Int
  }

  struct Image: Decodable, Sendable {
    var bytes: Int
    var etag: String
    var variant: String
    var url: String?
    var thumbhash: String?
    var dominantColor: String?
    var original: String
    var sha256: String
    var variants: [Variant]
  }

  struct Variant: Decodable, Sendable {
    var name, format, contentType, etag, href: String
    var width, height, bytes: Int
  }

  struct Failure: Decodable, Sendable {
    var code: String
    var detail: String
    var retryable: Bool
    var originStatus: Int?
  }

  struct Cache: Decodable, Sendable {
    var status: String
    var age: Int?
    var freshUntil: String?
  }

  struct Timings: Decodable, Sendable {
    var queuedMs, dnsMs, connectMs, tlsMs, firstByteMs, bodyMs, fetchMs, decodeMs: Double?
  }

  var id: String
  var phase: String
  var source: Source
  var priority: String
  var progress: Progress
  var image: Image?
  var error: Failure?
  var cache: Cache?
  var attempts: Int
  var timings: Timings
  var version: Int

  var isFinished: Bool { ["success", "failure", "cancelled"].contains(phase) }

  /// A short description for failed tests.
  var summary: String {
    "\(source.url ?? source.local ?? "") \(phase) \(error?.code ?? "") \(error?.detail ?? "")"
  }
}
