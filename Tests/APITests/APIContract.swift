import FoundationEssentials
import HTTPTypes
import Testing
import YAML

/// Checks responses against openapi.yaml.
struct APIContract {
  let checker: SchemaChecker
  let paths: [String: JSON]

  init() throws {
    // This file, Tests/APITests/APIContract.swift, is two folders below the package.
    let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent()
    let text = try String(contentsOf: root.appending(path: "openapi.yaml"), encoding: .utf8)
    checker = SchemaChecker(try #require(try Document(text).root))
    paths = try #require(checker.document["paths"]?.object)
  }

  /// The names of an operation's query parameters.
  func parameters(_ path: String, _ method: String) throws -> [String] {
    try #require(paths[path]?[method]?["parameters"]?.array).compactMap { checker.resolve($0) }
      .filter { $0["in"] == .string("query") }.compactMap { $0["name"]?.string }
  }

  /// Checks that openapi.yaml describes the response: its status, header fields, media type and content.
  func check(_ answer: Answer, _ method: HTTPRequest.Method, _ path: String) throws {
    let name = "\(method) \(path) \(answer.status)"
    let operation = paths[path]?[method.rawValue.lowercased()]
    let response = try #require(
      checker.resolve(operation?["responses"]?["\(answer.status)"]), "\(name) is not described")
    for field in (response["headers"]?.object ?? [:]).keys
    where !["Link", "Location", "RateLimit", "RateLimit-Policy"].contains(field)
      && !(field == "ETag" && answer.json?["state"] == .string("gone"))
    {
      #expect(answer.fields[HTTPField.Name(field)!] != nil, "\(name) lacks \(field)")
    }
    guard !answer.bytes.isEmpty else { return }
    let type = String(try #require(answer.fields[.contentType]).prefix { $0 != ";" })
    let schema = try #require(response["content"]?[type]?["schema"], "\(name) \(type)")
    let isText = type.hasPrefix("text/") || type.hasSuffix("ndjson")
    let content = isText ? .string(answer.text) : answer.json
    let mistakes = checker.mistakes(in: try #require(content), schema: schema)
    #expect(mistakes == [], "\(name)")
  }
}
