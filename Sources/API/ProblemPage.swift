internal import HTTPTypes
internal import Jobs

/// `GET /problems/{code}`: where a problem's `type` leads.
extension ProblemCode {
  /// For people: what it means and what to do.
  var page: WebPage {
    let row = row
    let kind =
      switch self {
      case .job: "A job's <code>error.code</code>."
      case .request: "The <code>code</code> of an answer with status \(row.status.code)."
      }
    let html = """
      <!doctype html>
      <html lang="en">
      <head>
      <meta charset="utf-8">
      <meta name="viewport" content="width=device-width">
      <title>\(name): \(row.title)</title>
      <style>
      body { font: 1rem/1.5 system-ui, sans-serif; max-width: 42rem; margin: 3rem auto; padding: 0 1rem }
      @media (prefers-color-scheme: dark) { body { background: #16181d; color: #e8eaee } }
      </style>
      </head>
      <body>
      <p><code>\(name)</code></p>
      <h1>\(row.title)</h1>
      <p>\(kind) What happened this time stands in its <code>detail</code>.</p>
      <h2>What to do</h2>
      <p>\(row.advice)</p>
      </body>
      </html>

      """
    return WebPage(
      Array(html.utf8), contentSecurityPolicy: "default-src 'none'; style-src 'unsafe-inline'")
  }
}
