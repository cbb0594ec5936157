import Fetch
import Foundation
import Jobs
import TestSupport
import Testing

@Suite("TLS")
struct SecureTests {
  // All tests share one server, because each would need a process and two keys.
  private static let shared = Task {
    let certificates = try TestCertificates()
    let server = try await PythonServer(tlsServer, arguments: [certificates.certificate])
    return (certificates: certificates, server: server)
  }

  private let certificates: TestCertificates
  private let server: PythonServer
  private let resolver = ScriptedResolver { _ in ["127.0.0.1"] }

  init() async throws {
    (certificates, server) = try await Self.shared.value
  }

  private func url(_ host: String, _ path: String = "/a") -> String {
    "https://\(host):\(server.port)\(path)"
  }

  private func trusting(
    _ change: (inout CurlFetcher.Configuration) -> Void = { _ in }
  ) throws -> CurlFetcher {
    try FetchTests.fetcher {
      $0.certificateAuthorities = certificates.authority
      $0.resolver = resolver
      change(&$0)
    }
  }

  @Test("a trusted origin is fetched from by name and by address, on one connection each")
  func trusted() async throws {
    let fetcher = try trusting()
    for host in ["secure.test", "127.0.0.1"] {
      let response = try await fetcher.fetch(request(url(host)))
      #expect(response.timings.tls > .zero)
      #expect(try await readAll(response.body).count == 100_000)
      let again = try await fetcher.fetch(request(url(host)))
      #expect(again.timings.tls == .zero)
      #expect(try await readAll(again.body).count == 100_000)
    }
  }

  @Test("an unknown authority is refused before the request is sent")
  func untrusted() async throws {
    let fetcher = try FetchTests.fetcher()
    let server = try await PythonServer(tlsServer, arguments: [certificates.certificate])
    guard
      case .tlsFailure("127.0.0.1", let detail) = await failure(
        of: fetcher, request("https://127.0.0.1:\(server.port)/a"))
    else {
      Issue.record("an unknown authority was trusted")
      return
    }
    #expect(!detail.isEmpty)
    #expect(server.printed.isEmpty)
  }

  @Test("a certificate for another name is refused")
  func otherName() async throws {
    guard
      case .tlsFailure("other.test", _) = await failure(
        of: try trusting(), request(url("other.test")))
    else {
      Issue.record("a certificate for another name was trusted")
      return
    }
  }

  @Test("an origin that does not use TLS is a TLS failure")
  func noTLS() async throws {
    let origin = try await PythonServer(plainServer)
    let error = await failure(of: try trusting(), request("https://127.0.0.1:\(origin.port)/"))
    guard case .tlsFailure = error else {
      Issue.record("\(String(describing: error))")
      return
    }
  }

  @Test(
    "a handshake that breaks is a connection failure, not a TLS failure",
    arguments: ["reset", "close"])
  func brokenHandshake(way: String) async throws {
    let server = try await PythonServer(breakingServer, arguments: [way])
    let error = await failure(of: try trusting(), request("https://127.0.0.1:\(server.port)/"))
    guard case .connectFailure("127.0.0.1", let detail) = error else {
      Issue.record("\(String(describing: error))")
      return
    }
    #expect(!detail.isEmpty)
  }

  @Test("a handshake that never ends is a connection failure after the connect timeout")
  func endlessHandshake() async throws {
    let silent = try ScriptedOrigin()
    let fetcher = try trusting { $0.connectTimeout = .milliseconds(300) }
    let error = await failure(of: fetcher, request("https://127.0.0.1:\(silent.port)/"))
    guard case .connectFailure = error else {
      Issue.record("\(String(describing: error))")
      return
    }
  }

  @Test("a redirect from TLS to plain HTTP is followed, without the client's fields")
  func downgrade() async throws {
    let origin = try ScriptedOrigin()
    origin.on("/plain", .ok(bytes(10)))
    let target = origin.url("/plain").addingPercentEncoding(withAllowedCharacters: .alphanumerics)!
    let key = HeaderField(name: "Authorization", value: "Bearer x")
    let error = await failure(
      of: try trusting(), request(url("secure.test", "/to?\(target)"), headers: [key]))
    #expect(error == nil)
    #expect(origin.requests[0].header("Authorization") == nil)
  }

  @Test("an unreadable file of certificate authorities is reported at once")
  func missingAuthorities() {
    #expect(throws: FetcherSetupError.unreadableCertificates(path: "/nonexistent.pem")) {
      try FetchTests.fetcher { $0.certificateAuthorities = "/nonexistent.pem" }
    }
  }
}

@Suite("An egress proxy")
struct ProxyTests {
  @Test("the proxy is asked to connect to the checked address, never to a name")
  func tunnels() async throws {
    let origin = try ScriptedOrigin()
    origin.on("/a", .ok(bytes(1_000)))
    let proxy = try await PythonServer(connectProxy)
    let resolver = ScriptedResolver { _ in ["10.0.0.1", "127.0.0.1"] }
    let fetcher = try FetchTests.fetcher {
      $0.proxy = "http://127.0.0.1:\(proxy.port)"
      $0.resolver = resolver
    }
    for _ in 0..<2 {
      let url = "http://images.test:\(origin.port)/a"
      #expect(await failure(of: fetcher, request(url)) == nil)
    }
    #expect(
      await failure(of: fetcher, request("http://10.0.0.1:\(origin.port)/a"))
        == .blocked(target: "10.0.0.1", .address("10.0.0.1", name: "Private-Use")))
    #expect(
      origin.requests.map { $0.header("Host") } == [
        "images.test:\(origin.port)", "images.test:\(origin.port)",
      ])
    #expect(proxy.printed == ["CONNECT 127.0.0.1:\(origin.port) HTTP/1.1"])
  }

  @Test("an unreachable proxy is a connection failure, but the target's address is checked first")
  func unreachable() async throws {
    let fetcher = try FetchTests.fetcher { $0.proxy = "http://127.0.0.1:1" }
    #expect(
      await failure(of: fetcher, request("http://127.0.0.1:8080/"))
        == .connectFailure(host: "127.0.0.1", detail: "the egress proxy could not be reached"))
  }

  @Test(
    "an error status of the proxy is reported and not taken for the origin's",
    arguments: [403, 407, 502])
  func refuses(status: Int) async throws {
    let proxy = try await PythonServer(refusingProxy, arguments: ["\(status)"])
    let fetcher = try FetchTests.fetcher { $0.proxy = "http://127.0.0.1:\(proxy.port)" }
    for target in ["http://127.0.0.1:8080/", "https://127.0.0.1:8443/"] {
      #expect(
        await failure(of: fetcher, request(target))
          == .connectFailure(host: "127.0.0.1", detail: "the egress proxy answered \(status)"))
    }
  }

  @Test("errors never name the proxy, even if its name has no address")
  func isNotNamed() async throws {
    let resolver = ScriptedResolver { name, _ in name == "images.test" ? ["127.0.0.1"] : [] }
    let fetcher = try FetchTests.fetcher {
      $0.proxy = "http://proxy.internal:3128"
      $0.resolver = resolver
    }
    #expect(
      await failure(of: fetcher, request("http://images.test:8080/"))
        == .connectFailure(host: "images.test", detail: "the egress proxy could not be reached"))
  }

  @Test(
    "a proxy that is not a valid URL is refused",
    arguments: ["", "::", "ftp://x", "socks5://127.0.0.1:1", "http://1.2.3.4.5"])
  func unusable(text: String) {
    #expect(throws: FetcherSetupError.unusableProxy) {
      try FetchTests.fetcher { $0.proxy = text }
    }
  }
}

private let tlsServer = """
  import http.server, ssl, sys, urllib.parse
  class Handler(http.server.BaseHTTPRequestHandler):
      protocol_version = "HTTP/1.1"
      def do_GET(self):
          print(self.path)
          path, _, query = self.path.partition("?")
          if path == "/to":
              self.send_response(302)
              self.send_header("Location", urllib.parse.unquote(query))
              self.send_header("Content-Length", "0")
              self.end_headers()
          else:
              self.send_response(200)
              self.send_header("Content-Length", "100000")
              self.end_headers()
              self.wfile.write(b"x" * 100000)
      def log_message(self, *arguments): pass
  class Server(http.server.ThreadingHTTPServer):
      def get_request(self):
          connection, address = self.socket.accept()
          return context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address
      def handle_error(self, *arguments): pass
  context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
  context.load_cert_chain(sys.argv[1])
  server = Server(("127.0.0.1", 0), Handler)
  print(server.server_address[1])
  server.serve_forever()
  """

private let breakingServer = """
  import socket, struct, sys
  listener = socket.create_server(("127.0.0.1", 0))
  print(listener.getsockname()[1])
  while True:
      client = listener.accept()[0]
      client.recv(100_000)
      if sys.argv[1] == "reset":
          client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
      client.close()
  """

private let plainServer = """
  import socket
  listener = socket.create_server(("127.0.0.1", 0))
  print(listener.getsockname()[1])
  while True:
      client = listener.accept()[0]
      client.recv(1000)
      client.sendall(b"HTTP/1.1 400 Bad Request\\r\\n\\r\\n")
      client.close()
  """

private let refusingProxy = """
  import socket, sys
  listener = socket.create_server(("127.0.0.1", 0))
  print(listener.getsockname()[1])
  while True:
      client = listener.accept()[0]
      client.recv(65536)
      head = f"HTTP/1.1 {sys.argv[1]} Refused\\r\\nContent-Length: 0\\r\\n\\r\\n"
      client.sendall(head.encode())
      client.close()
  """

private let connectProxy = """
  import socket, threading
  def pump(source, target):
      while True:
          try: data = source.recv(65536)
          except OSError: data = b""
          if not data: break
          target.sendall(data)
      for end in (source, target):
          try: end.shutdown(2)
          except OSError: pass
  def serve(client):
      head = b""
      while b"\\r\\n\\r\\n" not in head:
          data = client.recv(65536)
          if not data: return
          head += data
      line = head.split(b"\\r\\n")[0].decode()
      print(line)
      host, _, port = line.split()[1].rpartition(":")
      origin = socket.create_connection((host, int(port)))
      client.sendall(b"HTTP/1.1 200 Connection established\\r\\n\\r\\n")
      threading.Thread(target=pump, args=(origin, client), daemon=True).start()
      pump(client, origin)
  listener = socket.create_server(("127.0.0.1", 0))
  print(listener.getsockname()[1])
  while True:
      threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
  """

@Suite("An origin that sends too much over TLS")
struct SecureSmugglingTests {
  private let certificates: TestCertificates
  private let server: PythonServer
  private let fetcher: CurlFetcher

  init() async throws {
    let certificates = try TestCertificates()
    self.certificates = certificates
    server = try await PythonServer(smugglingServer, arguments: [certificates.certificate])
    fetcher = try FetchTests.fetcher { $0.certificateAuthorities = certificates.authority }
  }

  private func body(_ path: String) async throws -> String {
    let url = "https://127.0.0.1:\(server.port)/\(path)"
    return String(
      decoding: try await readAll(fetcher.fetch(request(url)).body), as: UTF8.self)
  }

  @Test(
    "bytes after a body's end never become the next response, in the same TLS record or another",
    arguments: ["same", "record", "following", "ending", "long"])
  func atOnce(path: String) async throws {
    for round in 0..<5 {
      #expect(try await body(path) == "first")
      #expect(try await body("next?\(round)") == "next?\(round)")
    }
  }

  @Test("bytes on an idle connection never become the next response")
  func later() async throws {
    for round in 1...3 {
      #expect(try await body("later") == "first")
      #expect(await poll { server.printed.count == round })
      #expect(try await body("next?\(round)") == "next?\(round)")
    }
  }

  @Test("a silent connection is kept, also with the session tickets of TLS 1.3")
  func clean() async throws {
    for _ in 0..<5 { #expect(try await body("number") == "1") }
  }
}

private let smugglingServer = """
  import socket, ssl, sys, threading, time
  evil = b"HTTP/1.1 200 OK\\r\\nContent-Length: 4\\r\\n\\r\\nevil"
  head = b"HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\n\\r\\n"
  def serve(client, number):
      client = context.wrap_socket(client, server_side=True)
      client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
      while True:
          request = b""
          while b"\\r\\n\\r\\n" not in request:
              data = client.recv(65536)
              if not data: return
              request += data
          path = request.split()[1].decode()[1:]
          if path == "same": client.sendall(head + b"first" + evil)
          elif path == "record":
              client.sendall(head); time.sleep(0.02); client.sendall(b"first" + evil)
          elif path == "following":
              # In one segment: bytes that arrive after the next request cannot be told apart from its
              # response.
              client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
              client.sendall(head + b"first"); client.sendall(evil)
              client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
          elif path == "ending":
              client.sendall(head); time.sleep(0.02); client.sendall(b"first" + evil)
              client.shutdown(socket.SHUT_RDWR)
          elif path == "long":
              client.sendall(head); time.sleep(0.02); client.sendall(b"first" + b"x" * 40000 + evil)
          elif path == "later":
              client.sendall(head + b"first"); time.sleep(0.05); client.sendall(evil)
              print("sent")
          else:
              body = (str(number) if path == "number" else path).encode()
              client.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
  def guarded(client, number):
      try: serve(client, number)
      except OSError: pass
  context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
  context.load_cert_chain(sys.argv[1])
  listener = socket.create_server(("127.0.0.1", 0))
  print(listener.getsockname()[1])
  number = 0
  while True:
      client = listener.accept()[0]
      number += 1
      threading.Thread(target=guarded, args=(client, number), daemon=True).start()
  """
