import API
import Foundation
import HTTPTypes
import Testing

@testable import Jobs

@Suite("The table of a job's options")
struct JobOptionTests {
  private let client = Client { configuration in
    configuration.view.isEnabled = true
    configuration.maxWait = .milliseconds(1)
  }

  /// A value that is not the default, in JSON.
  private static func sample(_ option: JobOption) -> String {
    switch option {
    case .url, .lowDataURL: #""https://b.example/""#
    case .local: #""a.png""#
    case .alternatives: #"["https://c.example/"]"#
    case .cacheKey: #""k""#
    case .headers: #"{"X-Key":"1"}"#
    case .cache: #""reload""#
    case .cacheTTL, .timeout, .maxBytes, .maxPixels, .maxAttempts: "5"
    // Jobs of views are kept for at least ten seconds.
    case .retention: "50"
    case .integrity: #""sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=""#
    case .priority: #""very_low""#
    case .tags: #"["t"]"#
    case .variants: #"[{"name":"small","width":4}]"#
    case .original: #""drop""#
    case .notify: #"{"url":"https://hook.example/"}"#
    case .deliver: #"[{"put":"https://store.example/a"}]"#
    }
  }

  /// The sample as a parameter of a query, or a cell of a CSV file.
  private static func text(_ option: JobOption) -> String {
    let sample = sample(option)
    return switch option.row.form {
    case .number, .json: sample
    case .text: String(sample.dropFirst().dropLast())
    case .list: String(sample.dropFirst(2).dropLast(2))
    }
  }

  /// A job with and one without the option. Both have variants if the option requires them.
  private static func members(_ option: JobOption) -> (with: [JobOption], without: [JobOption]) {
    let source: [JobOption] = option == .local ? [] : [.url]
    let others = option == .original ? [.variants] : [JobOption]()
    return (Array(Set(source + others + [option])), [.url] + others)
  }

  private func submitted(_ options: [JobOption]) async throws -> Job {
    let members = options.map { #""\#($0.rawValue)":\#(Self.sample($0))"# }
    let id = try await client.submitted("{\(members.joined(separator: ","))}")
    return try #require(client.service.with { $0.jobs[id] })
  }

  private static func query(_ options: [JobOption]) -> String {
    options.map { option in
      let text = text(option).addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? ""
      return "\(option.rawValue)=\(text)"
    }.joined(separator: "&")
  }

  private static func isChanged(_ job: Job, _ plain: Job) -> Bool {
    job.submission != plain.submission || job.priority != plain.priority || job.tags != plain.tags
  }

  @Test(
    "an option changes the job, its record, and the keys that the table says",
    arguments: JobOption.allCases.filter { $0 != .url })
  func isUsed(option: JobOption) async throws {
    let (with, without) = Self.members(option)
    let (job, plain) = (try await submitted(with), try await submitted(without))
    #expect(Self.isChanged(job, plain))
    #expect(try JSONDecoder().decode(Job.self, from: JSONEncoder().encode(job)) == job)
    // The low data URL is another resource only once it is requested.
    guard option != .local, option != .lowDataURL else { return }
    let identity = option.row.identity
    #expect((job.request == plain.request) == [.view, .none].contains(identity))
    let isOfViews = identity != .none && option != .tags
    #expect((job.submission.viewParts == plain.submission.viewParts) == !isOfViews)
  }

  @Test(
    "an option can be a member of all kinds of jobs that the table says, and of no other",
    arguments: JobOption.allCases)
  func isOfKinds(option: JobOption) async throws {
    let (with, without) = Self.members(option)
    let others = Set(with).union(without).subtracting([option, .url])
    let json: HTTPFields = [.contentType: "application/json"]
    let png: HTTPFields = [.contentType: "image/png"]
    let view = await client.get("/image?\(Self.query([.url] + with.filter { $0 != .url }))")
    #expect((view.status == 202) == option.row.kinds.contains(.view), "\(view.text)")
    let upload = await client.send(
      .post, "/jobs/upload?\(Self.query(others + [option]))", png, body: [1])
    #expect((upload.status == 202) == option.row.kinds.contains(.upload), "\(upload.text)")
    for (source, kind) in [(JobOption.url, JobOption.Kinds.url), (.local, .local)] {
      let members = Set([source, option]).union(others)
        .map { #""\#($0.rawValue)":\#(Self.sample($0))"# }
      let answer = await client.send(
        .post, "/jobs", json, body: Array("{\(members.joined(separator: ","))}".utf8))
      #expect((answer.status == 202) == option.row.kinds.contains(kind), "\(answer.text)")
    }
  }

  @Test("an option can be a column of a CSV batch", arguments: JobOption.allCases)
  func isColumn(option: JobOption) async throws {
    let columns = Self.members(option).with
    let cells = columns.map { "\"\(Self.text($0).replacing("\"", with: "\"\""))\"" }
    let text = [columns.map(\.rawValue), cells].map { $0.joined(separator: ",") }
    let answer = await client.send(
      .post, "/batches", [.contentType: "text/csv"],
      body: Array(text.joined(separator: "\n").utf8))
    #expect(answer.status == 202, "\(answer.text)")
    #expect(answer.json?["counts"]?["rejected"] == .number(0))
    let job = try #require(client.service.with { $0.jobs.values.first })
    let plain = try await submitted([.url])
    #expect(option == .url || Self.isChanged(job, plain))
  }

  @Test("openapi.yaml has each option where the table allows it")
  func isDescribed() throws {
    let contract = try APIContract()
    let components = try #require(contract.checker.document["components"])
    func check(_ name: String, _ described: [String]?, _ options: [JobOption]) {
      let difference = Set(described ?? []).symmetricDifference(options.map(\.rawValue))
      #expect(difference == [], "\(name) and the table differ")
    }
    let schemas: [(String, [JobOption])] = [
      ("NewURLJob", JobOption.all(of: .url)), ("NewLocalJob", JobOption.all(of: .local)),
      ("CapturedOptions", JobOption.all(of: .upload)),
      ("JobDefaults", JobOption.all(of: .url).filter { !$0.isSource }),
    ]
    for (name, options) in schemas {
      let properties = components["schemas"]?[name]?["properties"]?.object
      check(name, properties.map { Array($0.keys) }, options)
    }
    let upload = try contract.parameters("/jobs/upload", "post").filter { $0 != "wait" }
    check("POST /jobs/upload", upload, JobOption.all(of: .upload))
  }

  @Test(
    "the service refuses numbers beyond the bounds in openapi.yaml",
    arguments: JobOption.allCases.filter { $0.row.form == .number })
  func isBounded(option: JobOption) async throws {
    let contract = try APIContract()
    let schemas = try #require(contract.checker.document["components"]?["schemas"])
    let member = schemas["NewURLJob"]?["properties"]?[option.rawValue]
    let schema = try #require(contract.checker.resolve(member))
    let least = try #require(schema["minimum"]?.number)
    let most = schema["maximum"]?.number ?? least
    for (value, status) in [(least, 202), (least - 1, 422), (most, 202)] {
      let json = #"{"url":"https://a.example/","\#(option.rawValue)":\#(value)}"#
      #expect(await client.post(json).status == status, "\(value)")
    }
    guard most > least else { return }
    let above = #"{"url":"https://a.example/","\#(option.rawValue)":\#(most + 1)}"#
    #expect(await client.post(above).mistakes == ["/\(option.rawValue) invalid_option"])
  }
}
