// The page of the API: shows what /openapi.json says, for people to read. All of it comes from this process.

const METHODS = ["get", "put", "post", "delete"];
const COMPONENTS = "#/components/schemas/";

const $ = id => document.getElementById(id);

/** An element with text or further elements in it. */
function make(kind, content = [], fields = {}) {
  const made = Object.assign(document.createElement(kind), fields);
  made.append(...[content].flat());
  return made;
}

/** Text in which pieces between back quotes are code. A line ends where a paragraph or an item of a list does. */
const prose = text => text.replace(/([^\n])\n(?![\n*-])/g, "$1 ").split("`").map((piece, at) => at % 2 ? make("code", piece) : piece);

const link = name => make("a", name, { href: `#type-${name}` });

/** A schema in a line: its type, what it refers to, its limits. */
function shape(schema) {
  if (schema === true || schema === undefined) return ["anything"];
  if (schema.$ref) return [link(schema.$ref.replace(COMPONENTS, ""))];
  const several = schema.anyOf ?? schema.oneOf ?? schema.allOf;
  if (several && !schema.properties) return several.flatMap((one, at) => at ? [" or ", ...shape(one)] : shape(one));
  if (schema.const !== undefined) return [make("code", JSON.stringify(schema.const))];
  if (schema.enum) return schema.enum.flatMap((one, at) => [at ? ", " : "", make("code", JSON.stringify(one))]);
  const type = [schema.type ?? "value"].flat().join(" or ");
  if (schema.prefixItems) {
    return ["[", ...schema.prefixItems.flatMap((one, at) => at ? [", ", ...shape(one)] : shape(one)), "]"];
  }
  if (schema.items) return ["list of ", ...shape(schema.items), limits(schema)];
  if (schema.additionalProperties && !schema.properties) return ["map of ", ...shape(schema.additionalProperties)];
  return [type, limits(schema), ...(schema.pattern ? [" ", make("code", schema.pattern)] : [])];
}

/** The range of a number or a length. */
function limits(schema) {
  const range = (least, most, unit) => {
    if (least === undefined && most === undefined) return "";
    if (least === undefined) return ` (at most ${most}${unit})`;
    return most === undefined ? ` (at least ${least}${unit})` : ` (${least} to ${most}${unit})`;
  };
  return range(schema.minimum, schema.maximum, "") + range(schema.minLength, schema.maxLength, " characters") +
    range(schema.minItems, schema.maxItems, " items");
}

/** What people read of something, if there is anything. */
const about = said => said.description ? [make("p", prose(said.description))] : [];

const optional = needed => needed ? "" : " (may be left out)";

const row = (term, ...said) => make("div", [make("dt", term), make("dd", said.flat())]);

/** The fields of an object, and of the objects that it may be. */
function fields(schema) {
  const needed = new Set(schema.required);
  const own = Object.entries(schema.properties ?? {}).map(([name, field]) =>
    row([make("code", name), optional(needed.has(name))], shape(field), about(field)));
  const parts = (schema.oneOf ?? schema.anyOf ?? []).filter(part => part.properties);
  return [...own, ...parts.flatMap(part => [row("or"), ...fields(part)])];
}

function operation(path, method, said, shared) {
  const params = [...shared, ...said.parameters ?? []].map(param => row(
    [make("code", param.name), ` in ${param.in}${optional(param.required)}`], shape(param.schema), about(param)));
  const bodies = Object.entries(said.requestBody?.content ?? {}).map(([media, { schema }]) => row(media, shape(schema)));
  const answers = Object.entries(said.responses).map(([status, response]) => row(
    make("code", status), make("span", prose(response.description)),
    Object.values(response.content ?? {}).map(({ schema }) => make("div", shape(schema)))));
  const part = (title, rows) => rows.length ? [make("h3", title), make("dl", rows)] : [];
  const name = make("span", method.toUpperCase(), { className: "method" });
  name.dataset.method = method;
  const summary = make("summary", [name, make("code", path), make("small", prose(said.summary))]);
  const parts = [...part("Takes", params), ...part("Reads", bodies), ...part("Answers", answers)];
  return make("details", [summary, ...about(said), ...parts], { id: said.operationId });
}

function show(api) {
  $("about").append(...api.info.description.split("\n\n").map(text => make("p", prose(text))));
  for (const { name } of api.tags) {
    const section = make("section", make("h2", name));
    for (const [path, item] of Object.entries(api.paths)) {
      for (const method of METHODS.filter(method => item[method]?.tags.includes(name))) {
        section.append(operation(path, method, item[method], item.parameters ?? []));
      }
    }
    $("operations").append(section);
  }
  for (const [name, schema] of Object.entries(api.components.schemas)) {
    const rows = fields(schema);
    const content = rows.length ? make("dl", rows) : make("p", shape(schema));
    $("types").append(make("details", [make("summary", make("code", name)), ...about(schema), content], { id: `type-${name}` }));
  }
}

/** Leaves those that have a text, and opens what an address names. */
function find() {
  const wanted = $("find").value.trim().toLowerCase();
  for (const made of document.querySelectorAll("details")) {
    made.hidden = !made.textContent.toLowerCase().includes(wanted);
  }
  for (const section of document.querySelectorAll("#operations section")) {
    section.hidden = !section.querySelector("details:not([hidden])");
  }
}

function open() {
  const named = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (named?.tagName !== "DETAILS") return;
  [named.open, named.hidden] = [true, false];
  named.scrollIntoView();
}

async function start() {
  const response = await fetch("/openapi.json");
  if (!response.ok) throw new Error(`/openapi.json: ${response.status}`);
  show(await response.json());
  [$("state").textContent, $("state").dataset.state] = ["as this process serves it", "live"];
  $("find").oninput = find;
  addEventListener("hashchange", open);
  open();
}

start().catch(error => { [$("state").textContent, $("state").dataset.state] = [String(error), "waiting"]; });
