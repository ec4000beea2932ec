(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const get = (id) => document.getElementById(id);
  const number = (value) => value.toLocaleString("en");

  /** An element with a class and children; a text child is never read as HTML. */
  function make(tag, name, ...children) {
    const element = document.createElement(tag);
    if (name) element.className = name;
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  // Charts

  const dark = matchMedia("(prefers-color-scheme: dark)");

  /** The longest name in a chart's legend, in letters. */
  function longest(spec) {
    const inside = [...(spec.concat ?? []), ...(spec.layer ?? [])].map(longest);
    return Math.max(0, ...inside, ...(spec.encoding?.color?.scale?.domain ?? []).map((name) => name.length));
  }

  function config(width, room, letters) {
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const [text, soft, line] = ["--text", "--soft", "--line"].map(colour);
    return {
      background: "transparent",
      padding: { left: 0, right: 0, top: 0, bottom: 5 },
      style: { "group-title": { fill: text }, "guide-label": { fill: text }, "guide-title": { fill: soft } },
      title: { color: text, subtitleColor: soft, limit: room },
      axis: { labelColor: soft, titleColor: soft, gridColor: line, tickColor: line },
      axisY: { labelLimit: Math.min(240, Math.floor(0.36 * room)) },
      legend: { labelColor: text, columns: Math.max(1, Math.floor((width - 30) / (7 * letters + 34))) },
      text: { fill: text },
    };
  }

  function merged(under, over) {
    const both = { ...under };
    for (const [key, value] of Object.entries(over)) {
      const plain = value && typeof value === "object" && !Array.isArray(value);
      both[key] = plain ? merged(under?.[key] ?? {}, value) : value;
    }
    return both;
  }

  const columnsOf = (chart, width) => (chart.concat && width >= 720 ? chart.columns : 1);

  /** The chart for a box of so many pixels: panels side by side or stacked, each less wide by `excess`. */
  function fitted(chart, width, excess) {
    const spec = structuredClone(chart);
    const columns = columnsOf(spec, width);
    spec.columns = spec.concat ? columns : undefined;
    const room = Math.floor((width - (columns - 1) * 28) / columns);
    for (const panel of spec.concat ?? [spec]) panel.width = Math.max(120, Math.min(room, 860) - excess);
    spec.config = merged(spec.config ?? {}, config(width, room, longest(chart)));
    return spec;
  }

  async function draw(box) {
    const style = getComputedStyle(box);
    const width = box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const chart = data.charts[box.dataset.chart];
    const options = { actions: false, renderer: "svg", ast: true, tooltip: { theme: dark.matches ? "dark" : "light" } };
    let excess = 0;
    for (let round = 0; round < 4; round++) {
      await vegaEmbed(box.firstElementChild, fitted(chart, width, excess), options);
      const over = box.querySelector("svg").getBoundingClientRect().width - width;
      if (over <= 0) break;
      excess += Math.ceil(over / columnsOf(chart, width));
    }
  }

  const boxes = [...document.querySelectorAll(".chart")];
  let drawing = Promise.resolve();
  const drawAll = () => { drawing = drawing.then(async () => { for (const box of boxes) await draw(box); }); };
  let drawnWidth = innerWidth;
  let waiting = 0;
  drawAll();
  dark.addEventListener("change", drawAll);
  addEventListener("resize", () => {
    if (innerWidth === drawnWidth) return;
    drawnWidth = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(drawAll, 200);
  });

  // Questions

  const pages = new Map();

  async function unpack(place) {
    const bytes = Uint8Array.from(atob(get(`page-${place}`).textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const page = JSON.parse(await new Response(stream).text());
    page.byId = new Map(page.questions.map((question) => [question.question_id, question]));
    return page;
  }

  function pageOf(place) {
    if (!pages.has(place)) pages.set(place, unpack(place));
    return pages.get(place);
  }

  const [filter, type, select, sequence] = ["filter", "type", "question", "sequence"].map(get);
  const known = new Map(data.questions.map((row) => [row.id, row]));

  function options(element, rows) {
    element.replaceChildren(...rows.map(([value, label]) => {
      const option = make("option", "", label);
      option.value = value;
      return option;
    }));
  }

  function list() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = data.questions.filter((row) => {
      const text = `${row.id} ${row.question}`.toLowerCase();
      return (type.value === "all" || `is ${row.type ?? ""}` === type.value) && words.every((word) => text.includes(word));
    });
    const chosen = select.value;
    options(select, rows.map((row) => [row.id, `${row.id}: ${row.question}`]));
    if (rows.some((row) => row.id === chosen)) select.value = chosen;
    get("matching").textContent = `(${number(rows.length)} of ${number(data.questions.length)})`;
    if (select.value !== chosen) show();
    else step(0);
  }

  function step(by) {
    const place = select.selectedIndex + by;
    if (by && place >= 0 && place < select.length) {
      select.selectedIndex = place;
      show();
    }
    get("before").disabled = select.selectedIndex <= 0;
    get("after").disabled = select.selectedIndex >= select.length - 1;
  }

  function ordinal(rank) {
    const place = rank + 1;
    const tens = place % 100;
    const ending = tens > 10 && tens < 14 ? "th" : ["th", "st", "nd", "rd"][place % 10] ?? "th";
    return `${number(place)}${ending}`;
  }

  /** Ranges put together where they touch or overlap. */
  function united(ranges) {
    const found = [];
    for (const [start, end] of [...ranges].sort((a, b) => a[0] - b[0])) {
      const last = found.at(-1);
      if (last && start <= last[1]) last[1] = Math.max(last[1], end);
      else found.push([start, end]);
    }
    return found;
  }

  /** A span's text with the evidence in it marked; offsets are code points. */
  function marked([, start, end, text], evidence) {
    const letters = Array.from(text);
    const pieces = [];
    let done = start;
    for (const [from, to] of united(evidence)) {
      const [first, last] = [Math.max(from, start), Math.min(to, end)];
      if (first >= last) continue;
      pieces.push(letters.slice(done - start, first - start).join(""));
      pieces.push(make("mark", "", letters.slice(first - start, last - start).join("")));
      done = last;
    }
    pieces.push(letters.slice(done - start).join("").trimEnd());
    if (typeof pieces[0] === "string") pieces[0] = pieces[0].trimStart();
    return pieces;
  }

  const recordOf = (question, item, claim) => question.items.find((row) => row[0] === item && row[1] === claim)[2];

  function title(page, record) {
    const [ref, time] = page.records[record];
    return time ? `${ref} (${time})` : ref;
  }

  /** Where each evidence turn, or answer record, first appears in the steps. */
  function fates(page, question, steps) {
    const recalled = new Set(question.items.map((row) => page.records[row[2]][0]));
    return question.evidence.map(([ref, start, end, span]) => {
      const touching = [];
      const covered = [];
      steps.spans?.forEach((spans, place) => {
        for (const index of spans ?? []) {
          const [record, from, to] = page.spans[index];
          if (page.records[record][0] !== ref) continue;
          if (start === null) touching.push(place);
          else if (from < end && start < to) {
            touching.push(place);
            covered.push([Math.max(from, start), Math.min(to, end)]);
          }
        }
      });
      const characters = united(covered).reduce((sum, [from, to]) => sum + to - from, 0);
      return { ref, start, end, text: span === null ? null : page.spans[span][3], recalled: recalled.has(ref), first: touching[0], characters };
    });
  }

  function told(fate, steps, budgets) {
    if (!fate.recalled) return make("span", "unseen", "its record was not recalled");
    const most = number(Math.max(...budgets));
    if (fate.first === undefined) return make("span", "unseen", `no step up to ${most} characters shows it`);
    const when = `from step ${number(fate.first + 1)} on, at ${number(Math.max(steps.needed[fate.first], 0))} characters`;
    const at = steps.needed[fate.first] === 0 ? "in step 1, at every budget" : when;
    if (fate.start === null || fate.characters === fate.end - fate.start) return make("span", "shown", `shown, ${at}`);
    return make("span", "unseen", `${number(fate.characters)} of ${number(fate.end - fate.start)} characters shown, ${at}`);
  }

  function facts(page, question, steps) {
    const rows = [["Answer", question.answer ?? "none given"], ["Type", question.type ?? "none given"]];
    if (question.split !== null) rows.push(["Split", question.split]);
    if (question.parts.length) {
      rows.push(["Parts of the question", make("span", "", ...question.parts.map(([text, kind, holding]) => {
        const where = holding ? `in ${number(holding)} of the recalled records` : "in no recalled record";
        const part = make("span", holding ? "part" : "part nowhere", holding ? text : `${text} (nowhere)`);
        part.title = `${kind}, ${where}`;
        return part;
      }))]);
    }
    const found = fates(page, question, steps).map((fate) => make("li", "",
      `${fate.ref}${fate.start === null ? ", the whole record" : ` [${number(fate.start)}–${number(fate.end)}]`}: `,
      told(fate, steps, data.budgets[sequence.value]),
      fate.text === null || fate.characters === fate.end - fate.start ? null : make("span", "soft", ` “${fate.text}”`)));
    rows.push(["Evidence", found.length ? make("ul", "", ...found) : "no labels"]);
    get("facts").replaceChildren(...rows.flatMap(([name, value]) => [make("dt", "", name), make("dd", "", value)]));
  }

  function stepRow(page, question, steps, place, answers, running) {
    const [item, claim] = [steps.item_position[place], steps.claim_position[place]];
    const record = recordOf(question, item, claim);
    const ref = page.records[record][0];
    const evidence = question.evidence.filter((row) => row[0] === ref && row[1] !== null).map((row) => [row[1], row[2]]);
    const pieces = (steps.spans[place] ?? []).flatMap((index, count) =>
      [count ? make("span", "gap", "[…]") : null, ...marked(page.spans[index], evidence)]);
    const basis = steps.basis[place];
    const head = make("div", "head",
      make("span", "place", `${number(place + 1)}`),
      make("span", "", title(page, record)),
      make("span", "", claim ? `excerpt under item ${number(item + 1)}` : `item ${number(item + 1)}`),
      answers.has(ref) ? make("span", "badge", "✓ answer record") : null,
      make("span", "total", `${steps.cost[place] < 0 ? "−" : "+"}${number(Math.abs(steps.cost[place]))} = ${number(running)} characters`));
    const ranks = [`record ${ordinal(steps.record_rank[place])} in recall`];
    const inside = steps.inside_rank?.[place];
    const cosine = steps.cosine_rank?.[place];
    if (inside !== null && inside !== undefined) ranks.push(inside ? `${ordinal(inside)} best passage of its record` : "best passage of its record");
    if (cosine !== null && cosine !== undefined) ranks.push(`${ordinal(cosine)} by vector among all passages`);
    if (basis !== "passage") ranks.push(data.bases[claim ? "excerpt" : "quote"][basis] ?? basis);
    const named = (column) => (steps[column]?.[place] ?? []).map((part) => question.parts[part]?.[0] ?? `part ${part}`);
    const fresh = named("new_parts");
    const old = named("parts").filter((part) => !fresh.includes(part));
    if (fresh.length) ranks.push(`newly covers: ${fresh.join(", ")}`);
    if (old.length) ranks.push(`holds again: ${old.join(", ")}`);
    return make("li", answers.has(ref) ? "step answer" : "step", head, make("p", "", ...pieces),
      make("div", "head", ...ranks.map((text) => make("span", "", text))));
  }

  function cutRow(budgets) {
    const names = budgets.map(number);
    const last = names.pop();
    const text = names.length ? `${names.join(", ")} and ${last}` : last;
    return make("li", "cut", `${text} characters end here`);
  }

  function stepRows(page, question, steps) {
    const answers = new Set(question.evidence.map((row) => row[0]));
    const budgets = data.budgets[sequence.value];
    const rows = [];
    let running = 0;
    let open = [...budgets];
    (steps.needed ?? []).forEach((needed, place) => {
      const ended = open.filter((budget) => budget < needed);
      if (ended.length) rows.push(cutRow(ended));
      open = open.filter((budget) => budget >= needed);
      running += steps.cost[place];
      rows.push(stepRow(page, question, steps, place, answers, running));
    });
    if (!rows.length) return [make("li", "ended", "Nothing was recalled for this question.")];
    if (steps.later) {
      if (open.length) rows.push(cutRow(open));
      rows.push(make("li", "ended", `${number(steps.later)} further steps need more than the largest budget.`));
    } else {
      const names = open.map(number).join(", ");
      rows.push(make("li", "ended", `The sequence ends here${names ? `: ${names} characters take all of it` : ""}.`));
    }
    return rows;
  }

  let asked = 0;
  async function show() {
    const turn = ++asked;
    step(0);
    const row = known.get(select.value);
    get("one").hidden = !row;
    if (!row) return;
    const page = await pageOf(row.page);
    if (turn !== asked) return; // another question was chosen meanwhile
    const question = page.byId.get(row.id);
    const steps = question.sequences[sequence.value];
    get("asked").textContent = question.question;
    facts(page, question, steps);
    get("steps").replaceChildren(...stepRows(page, question, steps));
    const link = new URLSearchParams({ q: row.id, s: sequence.value });
    if (turn > 1) history.replaceState(null, "", `#${link}`);
  }

  /** Choose what the address names: #q=ID&s=SEQUENCE. */
  function follow() {
    const link = new URLSearchParams(location.hash.slice(1));
    if (!known.has(link.get("q"))) return false;
    filter.value = "";
    type.value = "all";
    list();
    select.value = link.get("q");
    if (link.get("s") in data.budgets) sequence.value = link.get("s");
    guarded(show)();
    return true;
  }

  const guarded = (work) => async () => {
    try {
      await work();
    } catch (error) {
      const old = typeof DecompressionStream === "undefined";
      get("trouble").replaceChildren(make("p", "warning", old ? "This browser is too old to unpack the questions." : `The questions cannot be shown: ${error}`));
    }
  };

  const types = [...new Set(data.questions.map((row) => row.type ?? ""))].sort();
  options(type, [["all", "all types"], ...types.map((name) => [`is ${name}`, name || "none given"])]);
  options(sequence, Object.keys(data.budgets).map((name) => [name, name]));
  if ("coverage" in data.budgets) sequence.value = "coverage";
  filter.addEventListener("input", list);
  type.addEventListener("change", list);
  for (const element of [select, sequence]) element.addEventListener("change", guarded(show));
  get("before").addEventListener("click", () => step(-1));
  get("after").addEventListener("click", () => step(1));
  get("choose").addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", follow);
  list();
  if (follow()) get("questions").scrollIntoView();
})();
