internal import HTTP
internal import HTTPTypes
internal import Jobs

/// `GET /problems/{code}`: the page at a problem's `type`.
extension ProblemCode {
  /// The page: the meaning of the code and the advice.
  var page: WebPage {
    ProblemPage.page(
      title: "\(name): \(row.title)",
      """
      <p><code>\(name)</code></p>
      <h1>\(row.title)</h1>
      <p>\(kind) The <code>detail</code> says what happened in this case.</p>
      \(meaning)
      \(advice)
      """)
  }

  private var kind: String {
    switch self {
    case .job: "A job's <code>error.code</code>."
    case .request: "The <code>code</code> of a response with status \(row.status.code)."
    }
  }

  private var meaning: String {
    let parts = row.meaning?.split(separator: "`", omittingEmptySubsequences: false) ?? []
    let marked = parts.enumerated().map { $0.isMultiple(of: 2) ? $1 : "<code>\($1)</code>" }
    return parts.isEmpty ? "" : "<p>\(marked.joined())</p>"
  }

  fileprivate var advice: String {
    """
    <h2>What to do</h2>
    <p>\(row.advice)</p>
    <p><a href="\(Destination.problems)">All problems</a></p>
    """
  }
}

/// Pages about problems: HTML for people, JSON for programs.
enum ProblemPage {
  /// `GET /problems/`: all codes with their titles; for programs also with their advice.
  static func index(asJSON: Bool) -> WebPage { asJSON ? list : index }

  private static var requests: [ProblemCode] { RequestCode.allCases.map { .request($0) } }
  private static var jobs: [ProblemCode] { FailureCode.allCases.map { .job($0) } }

  private static let list: WebPage = {
    var writer = JSONWriter()
    writer.object { json in
      let lists: [(StaticString, [ProblemCode])] = [("requests", requests), ("jobs", jobs)]
      for (name, codes) in lists {
        json.key(name)
        json.array(codes) { json, code in
          json.object { json in
            json.member("type", code.type)
            json.member("title", code.row.title)
            json.member("code", code.name)
            json.member("advice", code.row.advice)
          }
        }
      }
    }
    return WebPage(
      writer.bytes, contentType: "application/json", contentSecurityPolicy: "default-src 'none'")
  }()

  private static let index: WebPage = {
    func list(_ codes: [ProblemCode]) -> String {
      let items = codes.map {
        "<li><a href=\"\($0.type)\"><code>\($0.name)</code></a>: \($0.row.title)</li>"
      }
      return "<ul>\n\(items.joined(separator: "\n"))\n</ul>"
    }
    return page(
      title: "Problems",
      """
      <h1>Problems</h1>
      <p>The meaning of each <code>code</code>, and what to do.</p>
      <h2>Requests</h2>
      \(list(requests))
      <h2>Jobs</h2>
      \(list(jobs))
      """)
  }()

  /// A problem as a page for browsers, with the content of its `application/problem+json`.
  static func page(of problem: Problem) -> WebPage {
    let row = problem.code.row
    return page(
      title: row.title,
      """
      <p><code>\(problem.code.name)</code>, status \(problem.status.code)</p>
      <h1>\(row.title)</h1>
      <p>\(escaped(problem.detail))</p>
      \(problem.code.advice)
      """)
  }

  static func page(title: String, _ content: String) -> WebPage {
    let html = """
      <!doctype html>
      <html lang="en">
      <head>
      <meta charset="utf-8">
      <meta name="viewport" content="width=device-width">
      <title>\(title)</title>
      <style>
      body { font: 1rem/1.5 system-ui, sans-serif; max-width: 42rem; margin: 3rem auto; padding: 0 1rem }
      @media (prefers-color-scheme: dark) {
        body { background: #16181d; color: #e8eaee }
        a { color: #8ab4f8 }
      }
      </style>
      </head>
      <body>
      <main>
      \(content)
      </main>
      </body>
      </html>

      """
    return WebPage(
      Array(html.utf8), contentSecurityPolicy: "default-src 'none'; style-src 'unsafe-inline'")
  }

  private static func escaped(_ text: String) -> String {
    // Replaces scalars, not characters: `<` followed by a combining mark is a different character.
    text.unicodeScalars.reduce(into: "") { escaped, scalar in
      switch scalar {
      case "&": escaped += "&amp;"
      case "<": escaped += "&lt;"
      case ">": escaped += "&gt;"
      case "\"": escaped += "&quot;"
      default: escaped.unicodeScalars.append(scalar)
      }
    }
  }
}

extension Route {
  /// Whether browsers get problems of this path as a page. All other paths respond with JSON.
  var hasProblemPages: Bool {
    switch self {
    case .unknown, .problem, .problems: true
    default: false
    }
  }
}

/// A document that is the same for all clients and requests until the next version of the service.
package struct WebPage: Sendable {
  private let bytes: [UInt8]
  private let fields: HTTPFields
  private let entityTag: String

  /// - Parameters:
  ///   - bytes: the text in UTF-8.
  ///   - contentSecurityPolicy: the value of the header field.
  package init(
    _ bytes: [UInt8], contentType: String = "text/html; charset=utf-8",
    contentSecurityPolicy: String
  ) {
    self.bytes = bytes
    entityTag = ImageDigest(of: bytes).entityTag
    fields = [
      .contentType: contentType,
      // Revalidated at each visit, so that a new version of the service never runs with an old page.
      .cacheControl: "no-cache",
      .eTag: entityTag,
      .contentSecurityPolicy: contentSecurityPolicy,
      .xContentTypeOptions: "nosniff",
      .referrerPolicy: "no-referrer",
    ]
  }

  /// The page as the response with an error status.
  func answer(_ status: HTTPResponse.Status, with others: HTTPFields) -> Response {
    var fields = fields
    fields[.eTag] = nil
    fields[.cacheControl] = "no-store"
    fields.append(contentsOf: others)
    return Response(status: status, fields: fields, content: .bytes(bytes))
  }

  /// 200, or 304 if the client has the page.
  func answer(_ requestFields: HTTPFields) -> Response {
    let response = Response(status: .ok, fields: fields, content: .bytes(bytes))
    guard let field = requestFields[.ifNoneMatch], Conditions.names(entityTag, in: field) else {
      return response
    }
    return response.notModified
  }
}
