import Foundation
import Glibc
import HTTP
import HTTPTypes
import TestSupport

/// A server on a free port. Its refusals return their reason as text.
struct Served {
  let server: HTTPServer
  let port: Int

  init(
    _ configure: (inout HTTPServer.Configuration) -> Void = { _ in },
    handler: @escaping RequestHandler
  ) throws {
    var configuration = HTTPServer.Configuration()
    configuration.port = 0
    configuration.threads = 2
    configure(&configuration)
    server = HTTPServer(
      configuration, handler: handler,
      refusal: { refusal, origin in
        var fields = HTTPFields()
        fields[.accessControlAllowOrigin] = origin
        fields[.contentType] = "application/problem+json"
        return Response(
          status: .badRequest, fields: fields, content: .bytes(Array("\(refusal)".utf8)))
      })
    port = try server.start().port
  }

  /// Runs blocking work with a server, and then stops the server.
  static func with<T: Sendable>(
    _ configure: (inout HTTPServer.Configuration) -> Void = { _ in },
    handler: @escaping RequestHandler, _ work: @escaping @Sendable (Int) throws -> T
  ) async throws -> T {
    try await with(configure, handler: handler) { port, _ in try work(port) }
  }

  static func with<T: Sendable>(
    _ configure: (inout HTTPServer.Configuration) -> Void = { _ in },
    handler: @escaping RequestHandler, _ work: @escaping @Sendable (Int, HTTPServer) throws -> T
  ) async throws -> T {
    let served = try Served(configure, handler: handler)
    let port = served.port
    let result: Result<T, any Error>
    do { result = .success(try await blocking { try work(port, served.server) }) } catch {
      result = .failure(error)
    }
    await served.server.stop(within: .seconds(1))
    return try result.get()
  }
}

extension HTTPServer {
  /// Waits until this many requests are being handled.
  func isAnswering(_ count: Int) throws {
    let end = ContinuousClock.now + patience
    while statistics.active != count {
      guard ContinuousClock.now < end else { throw RawClient.Failure(what: "\(statistics)") }
      usleep(1000)
    }
  }
}

extension Response {
  static func text(_ text: String, _ status: HTTPResponse.Status = .ok) -> Response {
    Response(status: status, content: .bytes(Array(text.utf8)))
  }
}

extension RequestBody {
  /// Reads the whole content.
  /// - Throws: `.tooLarge` as soon as the announced or received length exceeds `limit`.
  func collect(upTo limit: Int) async throws(BodyError) -> [UInt8] {
    if let declaredLength, declaredLength > limit { throw .tooLarge(limit: limit) }
    var all: [UInt8] = []
    while let bytes = try await next() {
      guard all.count + bytes.count <= limit else { throw .tooLarge(limit: limit) }
      if all.isEmpty { all = bytes } else { all += bytes }
    }
    return all
  }
}

/// Responds with a description of the request.
let echo: RequestHandler = { request in
  var text = "\(request.method.rawValue) \(request.path) \(request.query ?? "-")"
  do {
    let body = try await request.body.collect(upTo: 1 << 20)
    if !body.isEmpty { text += " \(String(decoding: body, as: UTF8.self))" }
  } catch {
    text += " \(error)"
  }
  return .text(text)
}

let get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
