import API
import HTTP
import HTTPTypes
import Jobs
import Logging
import Synchronization
import TestSupport
import Testing

@Suite("An origin that is not let in")
struct CrossOriginLogTests {
  @Test("a refused origin is logged once, and only if some origins are allowed")
  func logged() async {
    let lines = Lines()
    let routes = { (origins: [String]) in
      var configuration = APIConfiguration()
      configuration.corsOrigins = origins
      return Routes(
        service: FakeJobService(renderer: FakeRenderer()), configuration: configuration,
        openAPI: [],
        openAPIJSON: { [] }, dashboard: { WebPage([], contentSecurityPolicy: "") }, metrics: { "" },
        activity: { Activity(end: Timestamp(milliseconds: 0)) },
        log: Logger(label: "test") { _ in lines })
    }
    let ask = { (routes: Routes, origin: String) in
      _ = await routes.respond(
        to: Request(
          method: .get, path: "/livez", query: nil,
          fields: [.origin: origin, HTTPField.Name("Host")!: "images.example:8080"],
          remoteAddress: "192.0.2.1", body: .sending([], in: .max)))
    }
    let some = routes(["https://a.example"])
    for origin in [
      "https://b.example", "https://b.example", "https://a.example", "http://images.example:8080",
      "null", "https://c.example",
    ] {
      await ask(some, origin)
    }
    await ask(routes([]), "https://d.example")
    #expect(lines.origins == ["https://b.example", "https://c.example"])
  }

  @Test("a page that a service without tokens refuses is logged once")
  func refusedPages() async {
    let lines = Lines()
    var configuration = APIConfiguration()
    configuration.allowedHosts = []
    configuration.view.isEnabled = true
    let routes = Routes(
      service: FakeJobService(renderer: FakeRenderer()), configuration: configuration, openAPI: [],
      openAPIJSON: { [] }, dashboard: { WebPage([], contentSecurityPolicy: "") }, metrics: { "" },
      activity: { Activity(end: Timestamp(milliseconds: 0)) },
      log: Logger(label: "test") { _ in lines })
    let host = HTTPField.Name("Host")!  // a token
    let site = HTTPField.Name("Sec-Fetch-Site")!  // a token
    for referrer in ["http://localhost:5173/a/b", "http://localhost:5173/c", nil, "nonsense"] {
      var fields: HTTPFields = [host: "127.0.0.1:8080", site: "cross-site"]
      fields[.referer] = referrer
      let answer = Answer(
        await routes.respond(
          to: Request(method: .get, path: "/image", query: "url=http://a/", fields: fields)))
      #expect(answer.status == 403 && answer.detail?.contains("host name") == true)
    }
    #expect(lines.pages == ["http://localhost:5173"])
  }

  /// Collects the origins that are logged.
  private final class Lines: LogHandler, Sendable {
    private let state = Mutex<[String]>([])
    private let refused = Mutex<[String]>([])
    var origins: [String] { state.withLock { $0 } }
    var pages: [String] { refused.withLock { $0 } }
    var metadata: Logger.Metadata {
      get { [:] }
      set {}
    }
    var logLevel: Logger.Level {
      get { .info }
      set {}
    }
    subscript(metadataKey _: String) -> Logger.Metadata.Value? {
      get { nil }
      set {}
    }

    func log(event: LogEvent) {
      if let origin = event.metadata?["origin"] { state.withLock { $0.append("\(origin)") } }
      if let page = event.metadata?["page"] { refused.withLock { $0.append("\(page)") } }
    }
  }
}
