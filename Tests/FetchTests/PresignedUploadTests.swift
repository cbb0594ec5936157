import Jobs
import TestSupport
import Testing

@testable import Fetch

@Suite("An upload to a presigned URL")
struct PresignedUploadTests {
  private func put(
    _ content: [UInt8], _ url: String, headers: [HeaderField] = [],
    _ change: (inout CurlFetcher.Configuration) -> Void = { _ in }
  ) async throws -> Result<String?, DeliveryError> {
    var policy = AddressPolicy()
    policy.allowNetworks = [CIDR("127.0.0.1/32")!]
    policy.allowPorts = []
    let upload = PresignedUpload(try fetcher(change).sender(under: policy))
    do throws(DeliveryError) {
      return .success(
        try await upload.put(
          .memory(content), as: "image/png", to: SourceURL(url)!, headers: headers))
    } catch {
      return .failure(error)
    }
  }

  @Test("the upload has the whole content and the fields that the URL was signed with")
  func whole() async throws {
    let origin = try ScriptedOrigin()
    origin.on("/k", .status(200, headers: [("ETag", "\"abc\"")]))
    let content = bytes(300_000)
    let fields = [HeaderField(name: "x-amz-acl", value: "private")]
    #expect(try await put(content, origin.url("/k?sig=1"), headers: fields) == .success("\"abc\""))
    let request = origin.requests[0]
    #expect(request.method == "PUT" && request.target == "/k?sig=1" && request.content == content)
    #expect(
      request.header("content-type") == "image/png" && request.header("x-amz-acl") == "private")
    #expect(
      request.header("content-length") == "300000" && request.header("transfer-encoding") == nil)
    #expect(
      !request.headers.contains {
        $0.name.lowercased().hasPrefix("x-amz-") && $0.name != "x-amz-acl"
      })
    let own = [HeaderField(name: "content-type", value: "image/x-own")]
    _ = try await put([1], origin.url("/k"), headers: own)
    #expect(
      origin.requests[1].headers.filter { $0.name.lowercased() == "content-type" }.map(\.value) == [
        "image/x-own"
      ])
  }

  @Test("an upload is tried three times if that may help, and otherwise once")
  func tries() async throws {
    let origin = try ScriptedOrigin()
    let to = "127.0.0.1:\(origin.port)"
    origin.on("/down", .status(503))
    origin.on("/later", inOrder: [.status(500), .silentClose, .status(200)])
    origin.on("/denied", .status(403))
    origin.on("/away", .redirect(to: origin.url("/there"), status: 307))
    #expect(
      try await put([1], origin.url("/down")) == .failure(.refused(to: to, status: 503, code: nil)))
    #expect(origin.requests(to: "/down").count == 3)
    #expect(try await put([1, 2], origin.url("/later")) == .success(nil))
    #expect(origin.requests(to: "/later").map(\.content) == [[1, 2], [1, 2], [1, 2]])
    #expect(
      try await put([1], origin.url("/denied"))
        == .failure(.refused(to: to, status: 403, code: nil)))
    #expect(
      try await put([1], origin.url("/away")) == .failure(.refused(to: to, status: 307, code: nil)))
    #expect(origin.requests(to: "/denied").count == 1 && origin.requests(to: "/there").isEmpty)
  }

  @Test("an upload obeys the address policy and fails if there is no response")
  func guarded() async throws {
    let origin = try ScriptedOrigin()
    origin.on("/", .silent)
    let other = try ScriptedOrigin(host: "127.0.0.2")
    let blocked = FetchError.blocked(target: "127.0.0.2", .address("127.0.0.2", name: "Loopback"))
    #expect(
      try await put([1], other.url("/"))
        == .failure(.unreachable(to: "127.0.0.2:\(other.port)", blocked)))
    #expect(other.acceptedConnections == 0)
    let stalled = try await put([1], origin.url("/")) { $0.stallTimeout = .milliseconds(200) }
    #expect(
      stalled == .failure(.unreachable(to: "127.0.0.1:\(origin.port)", .stalled(seconds: 0.2))))
    #expect(origin.requests.count == 3)
  }
}

extension ScriptedReply {
  /// Reads the request and closes the connection.
  fileprivate static var silentClose: Self { Self(.close) }
}
