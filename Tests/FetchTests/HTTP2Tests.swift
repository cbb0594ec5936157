import Fetch
import Foundation
import Jobs
import TestSupport
import Testing

@Suite("HTTP/2", .enabled(if: FileManager.default.isExecutableFile(atPath: "/usr/sbin/nginx")))
struct HTTP2Tests {
  private let certificates: TestCertificates
  private let server: NginxServer
  private let fetcher: CurlFetcher

  init() async throws {
    let certificates = try TestCertificates()
    self.certificates = certificates
    server = try await NginxServer(certificates)
    fetcher = try FetchTests.fetcher { $0.certificateAuthorities = certificates.authority }
  }

  @Test("HTTP/2 is used if a TLS origin supports it, and the connection is used again")
  func spoken() async throws {
    for _ in 0..<3 {
      let response = try await fetcher.fetch(request(server.url("/a")))
      #expect(response.contentLength == 3_000_000)
      #expect(try await readAll(response.body) == bytes(3_000_000))
    }
    let missing = await failure(of: fetcher, request(server.url("/missing")))
    #expect(missing == .originStatus(404, retryAfter: nil))
    #expect(await poll { server.log.count == 4 })
    #expect(server.log.allSatisfy { $0.hasPrefix("HTTP/2.0 ") })
    #expect(Set(server.log).count == 1)
  }

  @Test("a slow reader does not delay other transfers, and cancelling closes the connection")
  func separate() async throws {
    var held: FetchedResponse? = try await fetcher.fetch(
      request(server.url("/large"), maxBytes: 1 << 26))
    #expect(try await held?.body.next() != nil)
    for _ in 0..<3 { #expect(await failure(of: fetcher, request(server.url("/a"))) == nil) }
    #expect(server.connections == 2, "each running transfer has its own connection")
    held = nil
    #expect(await poll { server.log.count == 4 })
    #expect(Set(server.log).count == 2)
    #expect(await poll { server.connections == 1 })
    withExtendedLifetime(fetcher) {}
  }

  @Test("a reader that pauses repeatedly receives everything")
  func heldBack() async throws {
    let response = try await fetcher.fetch(request(server.url("/large"), maxBytes: 1 << 26))
    var body: [UInt8] = []
    while let next = try await response.body.next() {
      #expect(next.count <= 262_144)
      body += next
      try await Task.sleep(for: .milliseconds(2))
    }
    #expect(body == bytes(40_000_000))
  }
}

@Suite("An origin that violates HTTP/2")
struct BrokenHTTP2Tests {
  /// Responds over HTTP/2 with a field that is only valid in HTTP/1.1, and over HTTP/1.1 as its argument
  /// says. Prints the protocol and method of each request.
  private static let script = """
    import socket, ssl, struct, sys, threading
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1])
    context.set_alpn_protocols(['h2', 'http/1.1'])
    listener = socket.create_server(('127.0.0.1', 0))
    print(listener.getsockname()[1])

    def frame(kind, flags, stream, payload=b''):
        return struct.pack('>I', len(payload))[1:] + bytes([kind, flags]) + struct.pack('>I', stream) + payload

    def serve(connection):
        file = connection.makefile('rwb')
        if connection.selected_alpn_protocol() != 'h2':
            method = file.readline().split()[0].decode()
            length = 0
            while (line := file.readline().strip()):
                name, _, value = line.partition(b':')
                if name.lower() == b'content-length': length = int(value)
            file.read(length)
            print('1.1', method)
            file.write(b'HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\nConnection: close\\r\\n\\r\\nimage')
            return file.flush()
        file.read(24)
        file.write(frame(4, 0, 0))
        while len(head := file.read(9)) == 9:
            payload = file.read(int.from_bytes(head[:3], 'big'))
            if head[3] == 4 and not head[4] & 1: file.write(frame(4, 1, 0))
            if head[3] == 1:
                print('2')
                fields = b'\\x88' + b'\\x00\\x0aconnection\\x0akeep-alive'
                stream = int.from_bytes(head[5:], 'big')
                file.write(frame(1, 4, stream, fields) + frame(0, 1, stream, b'image'))
            file.flush()

    def accept(plain):
        try: serve(context.wrap_socket(plain, server_side=True))
        except OSError: pass
        finally: plain.close()

    while True: threading.Thread(target=accept, args=(listener.accept()[0],), daemon=True).start()
    """

  private let certificates: TestCertificates
  private let server: PythonServer
  private let fetcher: CurlFetcher
  private var url: String { "https://127.0.0.1:\(server.port)/a" }

  init() async throws {
    let certificates = try TestCertificates()
    self.certificates = certificates
    server = try await PythonServer(Self.script, arguments: [certificates.certificate])
    fetcher = try FetchTests.fetcher { $0.certificateAuthorities = certificates.authority }
  }

  @Test("a request to such an origin is sent again with HTTP/1.1")
  func fallback() async throws {
    let response = try await fetcher.fetch(request(url))
    #expect(try await readAll(response.body) == Array("image".utf8))
    #expect(await poll { server.printed == ["2", "1.1 GET"] })
  }

  @Test("a PUT is sent again with HTTP/1.1, whether or not all content was sent")
  func fallbackWithContent() async throws {
    let sender = fetcher.sender(under: .everywhere)
    let sent = OutgoingRequest(
      .put, try #require(SourceURL(url)), content: OutgoingContent(bytes(100_000)),
      timeout: .seconds(30), maxBytes: 100)
    for _ in 0..<20 { #expect(try await sender.send(sent).status == 200) }
    #expect(await poll { server.printed == (0..<20).flatMap { _ in ["2", "1.1 PUT"] } })
  }

  @Test("a POST is not sent again")
  func post() async throws {
    let sender = fetcher.sender(under: .everywhere)
    let sent = OutgoingRequest(
      .post, try #require(SourceURL(url)), content: OutgoingContent(bytes(10)),
      timeout: .seconds(30), maxBytes: 100)
    await #expect(throws: FetchError.self) { try await sender.send(sent) }
    #expect(await poll { server.printed == ["2"] })
  }
}

/// nginx with TLS and HTTP/2 on a free port, serving `/a` of 3 MB and `/large` of 40 MB.
private final class NginxServer: Sendable {
  private let child: ChildProcess
  private let folder: String
  private let port: Int

  init(_ certificates: TestCertificates) async throws {
    folder = certificates.folder
    port = try ScriptedOrigin().port
    let configuration = """
      daemon off; master_process off; worker_processes 1; error_log /dev/null;
      events { worker_connections 100; }
      http {
        log_format short "$server_protocol $connection"; access_log \(folder)/log short;
        client_body_temp_path \(folder)/t1; proxy_temp_path \(folder)/t2;
        fastcgi_temp_path \(folder)/t3; uwsgi_temp_path \(folder)/t4; scgi_temp_path \(folder)/t5;
        server {
          listen 127.0.0.1:\(port) ssl http2; root \(folder);
          ssl_certificate \(certificates.certificate);
          ssl_certificate_key \(certificates.certificate);
        }
      }
      """
    try configuration.write(toFile: "\(folder)/nginx.conf", atomically: true, encoding: .utf8)
    for (name, size) in [("a", 3_000_000), ("large", 40_000_000)] {
      try Data(bytes(size)).write(to: URL(fileURLWithPath: "\(folder)/\(name)"))
    }
    child = try ChildProcess(
      ["/usr/sbin/nginx", "-p", folder, "-c", "\(folder)/nginx.conf"], output: .null, errors: .null,
      endsWithOwner: true)
    guard await poll({ sockets(inState: "0A") == 1 }) else {
      throw CocoaError(.executableLoad)
    }
  }

  func url(_ path: String) -> String { "https://127.0.0.1:\(port)\(path)" }

  /// One line per finished request: the protocol and the number of its connection.
  var log: [String] {
    let text = (try? String(contentsOfFile: "\(folder)/log", encoding: .utf8)) ?? ""
    return text.split(separator: "\n").map(String.init)
  }

  /// The number of connections that are established to the server's port.
  var connections: Int { sockets(inState: "01") }

  /// Reads the kernel's list of sockets.
  private func sockets(inState state: String) -> Int {
    let file = FileHandle(forReadingAtPath: "/proc/net/tcp")
    let table = (try? file?.readToEnd()).map { String(decoding: $0, as: UTF8.self) } ?? ""
    let place = "0100007F:" + String(format: "%04X", port)
    return table.split(separator: "\n").count { line in
      let fields = line.split(separator: " ")
      return fields.count > 3 && fields[1] == place && fields[3] == state
    }
  }
}
