import FoundationEssentials
import Jobs
import Testing
import YAML

@testable import API

/// Checks the descriptions and examples in openapi.yaml for people and for client generators.
@Suite("openapi.yaml, for those who make clients of it")
struct OpenAPIWordsTests {
  let checker: SchemaChecker
  let schemas: [String: JSON]
  let operations: [(name: String, operation: JSON)]

  init() throws {
    let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent()
    let text = try String(contentsOf: root.appending(path: "openapi.yaml"), encoding: .utf8)
    checker = SchemaChecker(try #require(try Document(text).root))
    schemas = try #require(checker.document["components"]?["schemas"]?.object)
    let paths = try #require(checker.document["paths"]?.object)
    operations = paths.flatMap { path, methods in
      (methods.object ?? [:]).filter { $0.key != "parameters" }
        .map { (name: "\($0.key) \(path)", operation: $0.value) }
    }
  }

  /// Whether the value, or the one it refers to, has a description.
  private func isDescribed(_ value: JSON?) -> Bool {
    guard let value else { return false }
    return value["description"]?.string?.isEmpty == false
      || checker.resolve(value)?["description"]?.string?.isEmpty == false
  }

  @Test("openapi.yaml describes every schema and every member")
  func members() {
    #expect(schemas.count > 30)
    for (name, schema) in schemas {
      #expect(isDescribed(schema), "\(name)")
      for (member, value) in schema["properties"]?.object ?? [:] {
        #expect(isDescribed(value), "\(name).\(member)")
        // Nested members are named schemas, so that generated clients have types for them.
        #expect(value["properties"] == nil, "\(name).\(member)")
      }
    }
  }

  @Test(
    "openapi.yaml describes every operation, parameter and header field, and has examples of JSON")
  func operationsAreDescribed() throws {
    #expect(operations.count > 20)
    for (name, operation) in operations {
      #expect(operation["summary"]?.string?.isEmpty == false, "\(name)")
      #expect(isDescribed(operation), "\(name)")
      for parameter in operation["parameters"]?.array ?? [] {
        let parameter = try #require(checker.resolve(parameter))
        let says = isDescribed(parameter) || isDescribed(parameter["schema"])
        #expect(says, "\(name) \(parameter["name"]?.string ?? "")")
      }
      for (status, response) in operation["responses"]?.object ?? [:] {
        let response = try #require(checker.resolve(response))
        #expect(isDescribed(response), "\(name) \(status)")
        for (field, header) in response["headers"]?.object ?? [:] {
          #expect(isDescribed(header), "\(name) \(status) \(field)")
        }
        if status.hasPrefix("2") { try checkExamples(response["content"], "\(name) \(status)") }
      }
      try checkExamples(operation["requestBody"]?["content"], name)
    }
  }

  private func checkExamples(_ content: JSON?, _ name: String) throws {
    for (type, media) in content?.object ?? [:] where type.hasSuffix("json") {
      let examples =
        [media["example"]].compactMap { $0 }
        + (media["examples"]?.object ?? [:]).values.compactMap { checker.resolve($0)?["value"] }
      #expect(!examples.isEmpty, "\(name) \(type)")
      if let item = media["x-itemSchema"] {
        for line in examples.flatMap({ $0.string?.split(separator: "\n") ?? [] }) {
          let json = try JSONDecoder().decode(JSON.self, from: Data(line.utf8))
          #expect(checker.mistakes(in: json, schema: item) == [], "\(name)")
        }
        continue
      }
      for example in examples {
        let schema = try #require(media["schema"])
        #expect(checker.mistakes(in: example, schema: schema) == [], "\(name)")
      }
    }
  }

  @Test("openapi.yaml says for each paged resource that a page may be empty before the last one")
  func emptyPages() {
    let lists = operations.filter { _, operation in
      let content = operation["responses"]?["200"]?["content"]?["application/json"]
      return checker.resolve(content?["schema"])?["properties"]?["next_cursor"] != nil
    }
    #expect(lists.map(\.name).sorted() == ["get /batches", "get /jobs"])
    for (name, operation) in lists {
      let words = "even none. Continue while `next_cursor` is present"
      let described = operation["description"]?.string?.split(separator: "\n").joined(
        separator: " ")
      #expect(described?.contains(words) == true, "\(name)")
    }
  }

  @Test("a schema has members or alternatives, and each alternative is a named schema")
  func cases() {
    for (name, schema) in schemas {
      let isObject = schema["properties"] != nil
      let isChoice = schema["oneOf"] != nil || schema["anyOf"] != nil || schema["allOf"] != nil
      #expect(!(isObject && isChoice), "\(name)")
      #expect(schema["dependentRequired"] == nil, "\(name)")
    }
    for (name, operation) in operations {
      // Lines of a stream are bytes for generated clients, so their types can't be confused.
      let content = (operation["requestBody"]?["content"]?.object ?? [:]).filter {
        $0.value["x-itemSchema"] == nil
      }
      let types = content.keys.map { $0 }
      // A merge patch has a media type of its own, and plain JSON is accepted too.
      #expect(types.count <= 1 || types.allSatisfy { $0.hasSuffix("json") }, "\(name)")
    }
  }

  @Test("openapi.yaml lists the codes of all problems")
  func codes() throws {
    let text = try #require(schemas["Problem"]?["properties"]?["code"]?["description"]?.string)
    let answers = Set(text.matches(of: #/`([a-z_]+)`/#).map { String($0.1) })
    let jobsOnly = Set(FailureCode.allCases.map(\.rawValue)).subtracting(answers)
    #expect(answers.union(jobsOnly) == Set(ProblemCode.allCases.map(\.name)))
  }
}
