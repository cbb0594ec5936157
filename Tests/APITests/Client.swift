import API
import FoundationEssentials
import HTTP
import HTTPTypes
import Jobs
import Logging
import Synchronization
import TestSupport
import Testing

/// A client of the routes over a fake engine, without a socket.
struct Client {
  let service: FakeJobService
  let routes: Routes

  init(
    renderer: FakeRenderer? = FakeRenderer(),
    _ configure: (inout APIConfiguration) -> Void = { _ in }
  ) {
    service = FakeJobService(renderer: renderer)
    var configuration = APIConfiguration()
    configuration.hasLocalRoot = true
    configure(&configuration)
    routes = Routes(
      service: service, configuration: configuration, openAPI: Array("openapi: 3.1.0\n".utf8),
      openAPIJSON: { Array(#"{"openapi":"3.1.0"}"#.utf8) },
      dashboard: {
        WebPage(Array("<!DOCTYPE html>".utf8), contentSecurityPolicy: "default-src 'none'")
      },
      metrics: { "imagefetch_jobs 1\n" },
      activity: {
        Activity(end: Timestamp(milliseconds: 1_700_000_000_000), steps: [Activity.Step()])
      },
      log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
  }

  func send(
    _ method: HTTPRequest.Method, _ target: String, _ fields: HTTPFields = [:],
    body: [UInt8] = [], from address: String = "192.0.2.1", pieces: Int = .max
  ) async -> Answer {
    let parts = target.split(separator: "?", maxSplits: 1)
    let request = Request(
      method: method, path: String(parts[0]), query: parts.count > 1 ? String(parts[1]) : nil,
      fields: fields, remoteAddress: address, body: .sending(body, in: pieces))
    return Answer(await routes.respond(to: request))
  }

  func get(_ target: String, _ fields: HTTPFields = [:]) async -> Answer {
    await send(.get, target, fields)
  }

  /// Reads a streamed response to its end and returns its lines.
  func lines(_ target: String) async -> [JSON] {
    await streamed(target).split(separator: 0x0A).compactMap {
      try? JSONDecoder().decode(JSON.self, from: Data($0))
    }
  }

  /// Server-sent events, each as a dictionary of its fields.
  static func events(in bytes: [UInt8]) -> [JSON] {
    let text = String(decoding: bytes, as: UTF8.self)
    return text.components(separatedBy: "\n\n").compactMap { event in
      let fields = event.split(separator: "\n").compactMap { line -> (String, JSON)? in
        guard let colon = line.firstRange(of: ": "), colon.lowerBound > line.startIndex else {
          return nil
        }
        return (String(line[..<colon.lowerBound]), .string(String(line[colon.upperBound...])))
      }
      return fields.contains { $0.0 == "data" } ? .object(Dictionary(fields) { $1 }) : nil
    }
  }

  /// Reads a streamed response to its end.
  func streamed(_ target: String) async -> [UInt8] { await pieces(target).flatMap { $0 } }

  /// The same, in the pieces received.
  func pieces(_ target: String) async -> [[UInt8]] {
    let parts = target.split(separator: "?", maxSplits: 1)
    let request = Request(
      method: .get, path: String(parts[0]), query: parts.count > 1 ? String(parts[1]) : nil)
    guard case .stream(let stream) = await routes.respond(to: request).content else { return [] }
    var pieces: [[UInt8]] = []
    reading: while true {
      switch stream.next() {
      case .bytes(let piece): pieces.append(piece)
      case .nothingYet: try? await Task.sleep(for: .milliseconds(1))
      case .end: break reading
      case .failed:
        Issue.record("\(target) broke off")
        break reading
      }
    }
    return pieces
  }

  func post(
    _ json: String, to target: String = "/jobs", _ fields: HTTPFields = [:]
  ) async -> Answer {
    var fields = fields
    fields[.contentType] = fields[.contentType] ?? "application/json"
    return await send(.post, target, fields, body: Array(json.utf8))
  }

  /// Submits one job and returns its id.
  func submitted(
    _ json: String = #"{"url":"https://example.org/cat.jpg"}"#, _ fields: HTTPFields = [:]
  ) async throws -> JobID {
    let answer = await post(json, to: "/jobs", fields)
    #expect(answer.status == 202)
    return try #require(answer.json?["id"]?.string.flatMap { JobID($0) })
  }

  /// Submits one job and finishes it with these bytes as its image.
  func succeeded(
    _ bytes: [UInt8] = Array(0..<200), url: String = "https://example.org/cat.jpg",
    mode: CacheMode = .default,
    cache: (Timestamp) -> CacheOutcome? = { _ in CacheOutcome(.miss) }
  ) async throws -> JobID {
    let id = try await submitted(#"{"url":"\#(url)","cache":"\#(mode.rawValue)"}"#)
    let image = try await StoredImage.of(bytes, url: #require(SourceURL(url)))
    service.with { $0.images[image.digest] = bytes }
    let outcome = cache(service.now())
    service.change(id) { job in
      job.start(at: job.createdAt)
      job.succeed(with: image, cache: outcome, at: job.createdAt, keptFor: .seconds(3600))
    }
    return id
  }
}

extension StoredImage {
  static func of(_ bytes: [UInt8], url: SourceURL) async throws -> StoredImage {
    let capture = FakeCapture()
    try await capture.write(bytes)
    let digest = try await capture.finish().digest
    return StoredImage(
      description: ImageDescription(format: .jpeg, width: 16, height: 12), digest: digest,
      bytes: bytes.count, url: url, variant: .regular,
      modifiedAt: Timestamp(milliseconds: 1_700_000_000_500))
  }
}

/// A response, with helpers to read it.
struct Answer {
  let status: Int
  let fields: HTTPFields
  let bytes: [UInt8]
  /// The length of omitted content.
  let omitted: Int?
  let json: JSON?

  init(_ response: Response) {
    status = response.status.code
    fields = response.fields
    bytes =
      switch response.content {
      case .bytes(let bytes): bytes
      case .stream(let stream): stream.atOnce
      case .none, .file, .omitted: []
      }
    omitted = if case .omitted(let count) = response.content { count } else { nil }
    json = try? JSONDecoder().decode(JSON.self, from: Data(bytes))
  }

  var code: String? { json?["code"]?.string }
  var detail: String? { json?["detail"]?.string }
  var text: String { String(decoding: bytes, as: UTF8.self) }

  /// The problem's errors in the form `place code`.
  var mistakes: [String] {
    (json?["errors"]?.array ?? []).map { error in
      let place = error["pointer"] ?? error["parameter"] ?? error["header"]
      return "\(place?.string ?? "?") \(error["code"]?.string ?? "?")"
    }
  }
}

/// JSON as parsed by Foundation, not by the module under test.
enum JSON: Decodable, Equatable {
  case null, bool(Bool), number(Double), string(String), array([JSON]), object([String: JSON])

  init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    if container.decodeNil() {
      self = .null
    } else if let value = try? container.decode(Bool.self) {
      self = .bool(value)
    } else if let value = try? container.decode(Double.self) {
      self = .number(value)
    } else if let value = try? container.decode(String.self) {
      self = .string(value)
    } else if let value = try? container.decode([JSON].self) {
      self = .array(value)
    } else {
      self = .object(try container.decode([String: JSON].self))
    }
  }

  subscript(_ name: String) -> JSON? { object?[name] }
  subscript(_ index: Int) -> JSON? { array.flatMap { index < $0.count ? $0[index] : nil } }
  var object: [String: JSON]? { if case .object(let value) = self { value } else { nil } }
  var array: [JSON]? { if case .array(let value) = self { value } else { nil } }
  var string: String? { if case .string(let value) = self { value } else { nil } }
  var number: Double? { if case .number(let value) = self { value } else { nil } }
}

extension ContentStream {
  /// Reads the pieces that are available without waiting.
  var atOnce: [UInt8] {
    var all: [UInt8] = []
    while case .bytes(let bytes) = next() { all += bytes }
    return all
  }
}

extension RequestBody {
  /// A body that arrives in pieces of that size.
  static func sending(_ bytes: [UInt8], in size: Int, declared: Bool = true) -> RequestBody {
    let rest = Rest(bytes)
    return RequestBody(declaredLength: declared ? bytes.count : nil) { () throws(BodyError) in
      rest.take(size)
    }
  }

  private final class Rest: Sendable {
    private let bytes: Mutex<[UInt8]>
    init(_ bytes: [UInt8]) { self.bytes = Mutex(bytes) }
    func take(_ count: Int) -> [UInt8]? {
      bytes.withLock { bytes in
        guard !bytes.isEmpty else { return nil }
        let piece = Array(bytes.prefix(count))
        bytes.removeFirst(piece.count)
        return piece
      }
    }
  }
}

/// The content security policy of an image.
let imagePolicy = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
